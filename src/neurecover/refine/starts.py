"""Where descents begin: hidden weights drawn at random, for inputs with zero mean and unit covariance."""

import numpy as np


def random_units(rng: np.random.Generator, n_hidden: int, n_inputs: int, bias: bool) -> np.ndarray:
    """V (m, D): directions uniform on the sphere; with `bias`, kinks a standard Gaussian distance from the origin."""
    V = rng.standard_normal((n_hidden, n_inputs + bias))
    return V / np.linalg.norm(V[:, :n_inputs], axis=1, keepdims=True)


def scaled_units(V: np.ndarray, n_inputs: int) -> np.ndarray:
    """The same kinks with unit w, so that old units and new ones start on equal terms."""
    norm = np.linalg.norm(V[:, :n_inputs], axis=1, keepdims=True)
    return V / np.where(norm > 0, norm, 1.0)
