"""Recover the weights of a hidden network from samples of its inputs and outputs."""
