"""Sums that a check looks at: digits, normality, symmetry, influence, scores, active units."""
