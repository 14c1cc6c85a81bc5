"""Least squares to machine precision: descents, their race, fewer units, signs."""
