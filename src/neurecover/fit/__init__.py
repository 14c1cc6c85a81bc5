"""Least squares of one model of the family to samples."""
