"""Sums that a fit is made from: residuals, normal equations, information matrix, likelihood."""
