"""Means of products: joint moments, Hermite coefficients, and the sums that single papers need."""
