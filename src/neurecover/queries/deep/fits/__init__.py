"""Fits to answers: the output layer, all weights at once, and units that the answers call for or do not."""
