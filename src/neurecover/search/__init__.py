"""From nothing to a fit worth having: starts, race, narrowing, layers, signs, widths, rivals."""
