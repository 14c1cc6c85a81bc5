"""Functions that are no ReLU network of one hidden layer, or hardly one, given as if they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.hostile.case import Hostile, network, rows
from neurecover.models import DeepNetwork, Network


def deeper(rng: np.random.Generator) -> Hostile:
    """Two hidden layers."""
    d = int(rng.integers(2, 4))
    layers = [(rng.standard_normal((k, m)), 0.5 * rng.standard_normal(k)) for m, k in ((d, 3), (3, 2), (2, 1))]
    return _claimed(rng, d, DeepNetwork(layers))


def other_activation(rng: np.random.Generator) -> Hostile:
    """Sigmoid, softplus, steep softplus, tanh, leaky or cubed ReLU units."""
    net = network(rng)
    steep = 10.0 ** rng.uniform(1.0, 2.0)
    acts: list[Callable[[np.ndarray], np.ndarray]] = [
        np.tanh,
        lambda z: 1.0 / (1.0 + np.exp(-z)),
        lambda z: np.logaddexp(0.0, z),
        lambda z: np.logaddexp(0.0, steep * z) / steep,
        lambda z: np.maximum(z, 0.0) ** 3,
        lambda z: z / (1.0 + np.exp(-1.7 * z)),
    ]
    act = acts[int(rng.integers(len(acts)))]
    return _claimed(rng, net.n_inputs, lambda X: act(X @ net.W.T + net.b) @ net.A.T + net.c, net.n_hidden)


def leaky_units(rng: np.random.Generator) -> Hostile:
    """Leaky units: ReLU units beside an affine function, which pairs of them write in many ways."""
    net = network(rng)
    leak = rng.uniform(0.01, 0.99)

    def leaky(X: np.ndarray) -> np.ndarray:
        Z = X @ net.W.T + net.b
        return np.maximum(Z, leak * Z) @ net.A.T + net.c

    return _claimed(rng, net.n_inputs, leaky, net.n_hidden)


def quadratic(rng: np.random.Generator) -> Hostile:
    """A quadratic form."""
    d = int(rng.integers(2, 5))
    Q = rng.standard_normal((d, d))
    return _claimed(rng, d, lambda X: np.einsum("ni,ij,nj->n", X, Q, X)[:, None])


def cubic(rng: np.random.Generator) -> Hostile:
    """A cubic of one direction, and a line."""
    d = int(rng.integers(2, 5))
    w, v = rng.standard_normal((2, d))
    return _claimed(rng, d, lambda X: ((X @ w) ** 3 / 3.0 + X @ v)[:, None])


def steps(rng: np.random.Generator) -> Hostile:
    """Indicators of halfspaces: jumps instead of kinks."""
    net = network(rng)
    return _claimed(rng, net.n_inputs, lambda X: (X @ net.W.T + net.b > 0.0) @ net.A.T + net.c, net.n_hidden)


def network_with_a_jump(rng: np.random.Generator) -> Hostile:
    """A network, and a jump of 1e-3 to 1 across a plane."""
    net = network(rng, p=1)
    w, jump = rng.standard_normal(net.n_inputs), 10.0 ** rng.uniform(-3.0, 0.0)
    return _claimed(rng, net.n_inputs, lambda X: net(X) + jump * (X @ w > 0.5)[:, None], net.n_hidden, 0.0)


def wave(rng: np.random.Generator) -> Hostile:
    """A sine along a direction."""
    d = int(rng.integers(2, 4))
    w = rng.uniform(1.0, 3.0) * rng.standard_normal(d)
    return _claimed(rng, d, lambda X: np.sin(X @ w)[:, None])


def product(rng: np.random.Generator) -> Hostile:
    """x₁·x₂."""
    return _claimed(rng, 2, lambda X: X[:, :1] * X[:, 1:])


def largest(rng: np.random.Generator) -> Hostile:
    """The largest of three linear functions: kinks that end where they meet."""
    W = rng.standard_normal((3, 2))
    return _claimed(rng, 2, lambda X: (X @ W.T).max(axis=1, keepdims=True))


def distance(rng: np.random.Generator) -> Hostile:
    """The distance from a point."""
    d = int(rng.integers(2, 4))
    centre = rng.standard_normal(d)
    return _claimed(rng, d, lambda X: np.linalg.norm(X - centre, axis=1, keepdims=True))


def affine(rng: np.random.Generator) -> Hostile:
    """No unit at all: a straight line, which is a right answer where the width is to be found."""
    d, p = int(rng.integers(2, 5)), int(rng.integers(1, 3))
    B, c = rng.standard_normal((d, p)), rng.standard_normal(p)
    line = Network(np.zeros((0, d)), None, np.zeros((p, 0)), c, C=B.T)
    return replace(_claimed(rng, d, line), truth=line)


def network_and_line(rng: np.random.Generator) -> Hostile:
    """A network beside an affine function: units and a path around them."""
    net = network(rng)
    B = rng.standard_normal((net.n_inputs, net.n_outputs))
    return _claimed(rng, net.n_inputs, lambda X: net(X) + X @ B, net.n_hidden)


def nothing_but_noise(rng: np.random.Generator) -> Hostile:
    """Outputs that have nothing to do with the inputs."""
    d = int(rng.integers(2, 5))
    X = rng.standard_normal((int(rng.integers(30, 400)), d))
    return Hostile(X, rng.standard_normal((len(X), 1)), int(rng.integers(1, 4)), None)


def faintly_curved(rng: np.random.Generator) -> Hostile:
    """A network and 1e-9 to 1e-4 of a quadratic."""
    net = network(rng, p=1)
    Q, size = rng.standard_normal((net.n_inputs,) * 2), 10.0 ** rng.uniform(-9.0, -4.0)
    curved = lambda X: net(X) + size * np.einsum("ni,ij,nj->n", X, Q, X)[:, None]  # noqa: E731
    return _claimed(rng, net.n_inputs, curved, net.n_hidden, 0.0)


def mixture(rng: np.random.Generator) -> Hostile:
    """Every row from one of two networks, as it falls."""
    d = int(rng.integers(2, 4))
    one, other = network(rng, d, 2, 1), network(rng, d, 2, 1)
    X = rng.standard_normal((500, d))
    return Hostile(X, np.where(rng.random((500, 1)) < 0.5, one(X), other(X)), 2, None)


def labels(rng: np.random.Generator) -> Hostile:
    """0 and 1, by the sign of a network."""
    net = network(rng, p=1)
    return _claimed(rng, net.n_inputs, lambda X: (net(X) > np.median(net(X))).astype(float), net.n_hidden, 0.0)


def counts(rng: np.random.Generator) -> Hostile:
    """Poisson counts whose mean is a network: right on average, and an integer every time."""
    net = network(rng, p=1)
    truth = Network(net.W, net.b, 5.0 * np.abs(net.A), np.array([2.0]))
    X = rows(rng, truth, 600, 1_500)
    return Hostile(X, rng.poisson(truth(X)).astype(float), truth.n_hidden, truth)


def switching(rng: np.random.Generator) -> Hostile:
    """One network for the first half of the rows, one with a weight changed by 1e-6 to 1 for the second."""
    net = network(rng)
    A = net.A.copy()
    A[0, 0] += 10.0 ** rng.uniform(-6.0, 0.0)
    X = rows(rng, net)
    half = len(X) // 2
    Y = np.vstack([net(X[:half]), Network(net.W, net.b, A, net.c)(X[half:])])
    return Hostile(X, Y, net.n_hidden, None)


def _claimed(
    rng: np.random.Generator,
    d: int,
    function: Callable[[np.ndarray], np.ndarray],
    k: int = 0,
    noise: float | None = None,
) -> Hostile:
    """Draw samples of a function that is given as a network of width k, with a little noise, none, or as asked."""
    X = rng.standard_normal((int(rng.integers(150, 600)), d))
    plain = np.asarray(function(X), dtype=float)
    scale = 0.03 * int(rng.integers(2)) if noise is None else noise
    Y = plain + scale * plain.std(axis=0) * rng.standard_normal(plain.shape)
    return Hostile(X, Y, k or int(rng.integers(2, 5)), None, plain=plain)


FAMILIES = (
    deeper,
    other_activation,
    leaky_units,
    quadratic,
    cubic,
    steps,
    network_with_a_jump,
    wave,
    product,
    largest,
    distance,
    affine,
    network_and_line,
    nothing_but_noise,
    faintly_curved,
    mixture,
    labels,
    counts,
    switching,
)
