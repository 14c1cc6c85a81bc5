"""Sums for fitting: residuals, normal equations, information matrix, likelihood."""
