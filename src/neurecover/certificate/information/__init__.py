"""The information of the samples about the weights, and the errors that follow from it."""
