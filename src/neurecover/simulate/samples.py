"""Samples of a network: X from an input distribution, Y = net(X) + noise."""

from numbers import Real

import numpy as np
from numpy.typing import NDArray

from neurecover.models import Network, check_network
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate._checks import non_negative, positive_integer
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
    """Draw inputs X, and return them with Y = network(X) + noise.

    Parameters
    ----------
    network : Network
        The network that answers.
    n_samples : int
        The number n of rows.
    inputs : str or callable, default="gaussian"
        The distribution of the inputs: a name such as "student(5)", or a callable (rng, n, d) → (n, d).
    noise : float or callable, default=0.0
        The standard deviation of Gaussian noise, or a callable (rng, Y) → E.
    random_state : int, Generator, RandomState or None, default=None
        The seed. X is drawn first, so that a seed gives the same X at every noise.

    Returns
    -------
    X : ndarray of shape (n, d)
        The inputs.
    Y : ndarray of shape (n, p)
        The outputs.

    Examples
    --------
    >>> import neurecover as nr
    >>> X, Y = nr.simulate.sample(nr.simulate.teacher(6, 4, random_state=0), 100, noise=0.1, random_state=0)
    >>> X.shape, Y.shape
    ((100, 6), (100, 1))
    """
    check_network(network, "simulate.sample")
    n = positive_integer("n_samples", n_samples)
    d = network.n_inputs
    draw_inputs = distribution(inputs)
    draw_noise = GaussianNoise(non_negative("noise", noise)) if isinstance(noise, Real) else noise
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
