"""Several hidden layers of ReLU units, found layer by layer."""
