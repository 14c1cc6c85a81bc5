"""Kinks on lines: where a piecewise linear oracle bends."""
