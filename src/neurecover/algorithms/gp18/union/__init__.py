"""Unions of halfspaces from labels: fit, starts, posterior of the boundaries."""
