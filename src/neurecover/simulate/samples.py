"""Samples of a network: X from an input distribution, Y = net(X) + noise."""

from numbers import Real

import numpy as np
from numpy.typing import NDArray

from neurecover.models import Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate._checks import positive_integer
from neurecover.simulate.inputs import Distribution
from neurecover.simulate.names import distribution
from neurecover.simulate.noise import GaussianNoise, Noise


def sample(
    network: Network,
    n_samples: int,
    *,
    inputs: str | Distribution = "gaussian",
    noise: float | Noise = 0.0,
    random_state: RandomStateLike = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw X (n, d) from the input distribution and return it with Y (n, p) = network(X) + E.

    inputs is a name such as "student(5)" or a callable (rng, n, d) → (n, d). noise is the standard
    deviation of Gaussian noise or a callable (rng, Y) → E. X is drawn first, so that a seed gives the same
    X at every noise.
    """
    n = positive_integer("n_samples", n_samples)
    d = network.n_inputs
    draw_inputs = distribution(inputs)
    draw_noise = GaussianNoise(float(noise)) if isinstance(noise, Real) else noise
    if not callable(draw_noise):
        raise ValueError(f"noise must be a number or a callable (rng, Y) → E. Got {noise!r} instead.")
    rng = as_generator(random_state, "simulate.sample")
    X = np.asarray(draw_inputs(rng, n, d), dtype=float)
    if X.shape != (n, d):
        raise ValueError(f"The input distribution must give shape {(n, d)}. Got {X.shape} instead.")
    Y = network(X)
    E = np.asarray(draw_noise(rng, Y), dtype=float)
    if E.shape != Y.shape:
        raise ValueError(f"The noise must have the shape {Y.shape} of the outputs. Got {E.shape} instead.")
    return X, Y + E
