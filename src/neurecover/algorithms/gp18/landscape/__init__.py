"""Step 1: the units as local minima of an objective made of Hermite coefficients."""
