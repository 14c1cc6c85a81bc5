"""One hidden layer of piecewise linear units."""
