"""The information matrix of the samples about the weights, and the standard errors that follow from it."""
