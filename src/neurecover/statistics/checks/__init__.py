"""Sums for the checks of a result: digits, normality, symmetry, influence, scores, active units."""
