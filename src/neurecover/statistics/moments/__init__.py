"""Means of products: joint moments, Hermite coefficients, and sums used by the algorithm of one paper."""
