"""Inputs that show less than their number says: repeated, discrete, dependent, collinear, rare, in clusters."""

from __future__ import annotations

import numpy as np

from benchmarks.hostile.case import Hostile, clean, either, network, noisy, rows
from neurecover.models import replace_arrays


def repeated_rows(rng: np.random.Generator) -> Hostile:
    """Hardly more different inputs than parameters, each many times, every time with new noise."""
    net = network(rng, p=1)
    few = rng.standard_normal((int(rng.integers(net.n_parameters, 3 * net.n_parameters)), net.n_inputs))
    return noisy(rng, net, np.repeat(few, 20, axis=0))


def half_repeated(rng: np.random.Generator) -> Hostile:
    """Every sample twice, noise and all."""
    net = network(rng)
    case = noisy(rng, net, rows(rng, net))
    order = rng.permutation(2 * len(case.X))
    X, Y = np.vstack([case.X, case.X])[order], np.vstack([case.Y, case.Y])[order]
    return Hostile(X, Y, net.n_hidden, net)


def almost_repeated(rng: np.random.Generator) -> Hostile:
    """Every sample eight times with the same error and inputs that differ in the last digits."""
    net = network(rng)
    case = noisy(rng, net, rows(rng, net, 60, 150))
    X, Y = np.repeat(case.X, 8, axis=0), np.repeat(case.Y, 8, axis=0)
    order = rng.permutation(len(X))
    X = X + 1e-9 * rng.standard_normal(X.shape)
    return Hostile(X[order], Y[order], net.n_hidden, net)


def binary_cube(rng: np.random.Generator) -> Hostile:
    """Inputs 0 and 1: at most 32 different ones."""
    net = network(rng, int(rng.integers(3, 6)))
    net = replace_arrays(net, b=net.b - 0.5 * net.W.sum(axis=1))
    return either(rng, net, rng.integers(0, 2, (400, net.n_inputs)).astype(float))


def integers(rng: np.random.Generator) -> Hostile:
    """Inputs −2 … 2: kinks lie between the values."""
    net = network(rng, int(rng.integers(2, 4)))
    return either(rng, net, rng.integers(-2, 3, (500, net.n_inputs)).astype(float))


def lattice_with_counts(rng: np.random.Generator) -> Hostile:
    """A continuous column beside columns of small counts."""
    net = network(rng, 3)
    X = np.column_stack([rng.standard_normal(400), rng.poisson(0.5, (400, 2))])
    return either(rng, net, X)


def corner(rng: np.random.Generator) -> Hostile:
    """As many samples as a unit has weights, or a few more, far off and with values that no unit explains."""
    net = network(rng, int(rng.integers(2, 4)), p=1)
    X = rows(rng, net)
    D = net.n_inputs + 1
    away = 6.0 * rng.standard_normal(net.n_inputs)
    far = away + 0.5 * rng.standard_normal((int(rng.integers(D - 1, D + 3)), net.n_inputs))
    Y = np.vstack([net(X), net(far) + rng.standard_normal((len(far), 1))])
    order = rng.permutation(len(Y))
    return Hostile(np.vstack([X, far])[order], Y[order], net.n_hidden + 1, None)


def autocorrelated(rng: np.random.Generator) -> Hostile:
    """x and the noise are AR(0.9) series."""
    net = network(rng)
    n = int(rng.integers(500, 1_500))
    X, E = _series(rng, n, net.n_inputs), _series(rng, n, net.n_outputs)
    Y = net(X)
    return Hostile(X, Y + 0.05 * Y.std(axis=0) * E, net.n_hidden, net)


def shuffled_autocorrelated(rng: np.random.Generator) -> Hostile:
    """Blocks of ten neighbours share their noise, and nothing in the order of the rows shows it."""
    net = network(rng)
    groups = int(rng.integers(60, 150))
    X = np.repeat(rng.standard_normal((groups, net.n_inputs)), 10, axis=0)
    X = X + 0.05 * rng.standard_normal(X.shape)
    Y = net(X)
    E = np.repeat(rng.standard_normal((groups, net.n_outputs)), 10, axis=0)
    order = rng.permutation(len(X))
    return Hostile(X[order], (Y + 0.05 * Y.std(axis=0) * E)[order], net.n_hidden, net)


def sorted_rows(rng: np.random.Generator) -> Hostile:
    """Rows in the order of an input, with an error that drifts along them: a function of that input."""
    net = network(rng)
    X = rows(rng, net, 400, 900)
    X = X[np.argsort(X[:, 0])]
    Y = net(X)
    plain = Y + 0.05 * Y.std(axis=0) * np.sin(np.linspace(0.0, 9.0, len(X)))[:, None]
    noise = 0.05 * Y.std(axis=0) * rng.standard_normal(Y.shape)
    return Hostile(X, plain + noise, net.n_hidden, None, plain=plain)


def collinear_columns(rng: np.random.Generator) -> Hostile:
    """The last column is the sum of two others, exactly or to 1e-10 … 1e-4."""
    net = network(rng, int(rng.integers(3, 5)))
    X = rows(rng, net)
    X[:, -1] = X[:, 0] + X[:, 1]
    if rng.integers(2):
        X[:, -1] += 10.0 ** rng.uniform(-10.0, -4.0) * rng.standard_normal(len(X))
    return either(rng, net, X)


def one_hot(rng: np.random.Generator) -> Hostile:
    """Three indicator columns that add up to one, beside two others."""
    net = network(rng, 5)
    n = int(rng.integers(300, 600))
    X = np.hstack([np.eye(3)[rng.integers(0, 3, n)], rng.standard_normal((n, 2))])
    case = either(rng, net, X)
    return Hostile(case.X, case.Y, net.n_hidden, None)


def rare_column(rng: np.random.Generator) -> Hostile:
    """A column that is zero but for one to four rows."""
    net = network(rng, int(rng.integers(3, 5)))
    X = rows(rng, net)
    X[:, -1] = 0.0
    X[rng.choice(len(X), int(rng.integers(1, 5)), replace=False), -1] = 1.0
    return either(rng, net, X)


def rare_category(rng: np.random.Generator) -> Hostile:
    """A 0/1 column that is one in 3 % of the rows: some unit sees it on few of them."""
    net = network(rng, 3)
    X = rows(rng, net)
    X[:, -1] = rng.random(len(X)) < 0.03
    return either(rng, net, X)


def constant_column(rng: np.random.Generator) -> Hostile:
    """A column that never changes: its weights cannot be told from the biases."""
    net = network(rng, int(rng.integers(3, 5)))
    X = rows(rng, net)
    X[:, -1] = rng.standard_normal()
    case = either(rng, net, X)
    return Hostile(case.X, case.Y, net.n_hidden, None)


def heavy_tailed_inputs(rng: np.random.Generator) -> Hostile:
    """Cauchy or Student inputs: a few rows carry the covariance."""
    net = network(rng)
    return either(rng, net, rng.standard_t(rng.uniform(1.0, 3.0), (500, net.n_inputs)))


def sparse_inputs(rng: np.random.Generator) -> Hostile:
    """Nine of ten entries are zero."""
    net = network(rng)
    X = rng.standard_normal((800, net.n_inputs)) * (rng.random((800, net.n_inputs)) < 0.1)
    return either(rng, net, X)


def huge_offsets(rng: np.random.Generator) -> Hostile:
    """Inputs 1e3 to 1e8 standard deviations from zero: digits are lost before anything is computed."""
    net = network(rng)
    X = rows(rng, net)
    Z = X + 10.0 ** rng.uniform(3.0, 8.0) * rng.choice([-1.0, 1.0], net.n_inputs)
    shift = (Z - X).mean(axis=0)
    truth = replace_arrays(net, b=net.b - net.W @ shift)
    return either(rng, truth, Z)


def scaled_columns(rng: np.random.Generator) -> Hostile:
    """Columns of scales 1e-6 to 1e6."""
    net = network(rng)
    scale = 10.0 ** rng.uniform(-6.0, 6.0, net.n_inputs)
    return either(rng, replace_arrays(net, W=net.W / scale), rows(rng, net) * scale)


def barely_enough(rng: np.random.Generator) -> Hostile:
    """One to five equations more than parameters."""
    net = network(rng, p=1)
    free = net.n_parameters - net.n_hidden
    return either(rng, net, rng.standard_normal((free + int(rng.integers(1, 6)), net.n_inputs)))


def few_samples(rng: np.random.Generator) -> Hostile:
    """Eight to thirty samples."""
    net = network(rng)
    return either(rng, net, rng.standard_normal((int(rng.integers(8, 31)), net.n_inputs)))


def twice_the_parameters(rng: np.random.Generator) -> Hostile:
    """Noise, and two to five samples per parameter."""
    net = network(rng, p=1)
    return noisy(rng, net, rng.standard_normal((int(rng.integers(2, 6)) * net.n_parameters, net.n_inputs)), 0.02)


def clusters(rng: np.random.Generator) -> Hostile:
    """Three tight clusters: kinks between them are seen from neither side."""
    net = network(rng, p=1)
    centres = 2.0 * rng.standard_normal((3, net.n_inputs))
    X = centres[rng.integers(0, 3, 300)] + 0.1 * rng.standard_normal((300, net.n_inputs))
    return either(rng, net, X)


def on_a_curve(rng: np.random.Generator) -> Hostile:
    """Inputs on a circle: many functions of the angle agree with one network."""
    net = network(rng, 2)
    angle = rng.uniform(0.0, 2.0 * np.pi, 400)
    return either(rng, net, np.column_stack([np.cos(angle), np.sin(angle)]))


def leverage(rng: np.random.Generator) -> Hostile:
    """One or two rows a thousand standard deviations away, one of them wrong."""
    net = network(rng)
    X = rows(rng, net)
    X[: int(rng.integers(1, 3))] *= 1_000.0
    case = either(rng, net, X)
    Y = case.Y.copy()
    Y[0] *= 1.0 + 10.0 ** rng.uniform(-8.0, -1.0)
    return Hostile(X, Y, net.n_hidden, net)


def single_precision_inputs(rng: np.random.Generator) -> Hostile:
    """Outputs of inputs that are stored with fewer digits than they had."""
    net = network(rng)
    X = rows(rng, net)
    kept = X.astype(np.float32) if rng.integers(2) else np.round(X, 3)
    return Hostile(kept.astype(float), net(X), net.n_hidden, net)


def hidden_column(rng: np.random.Generator) -> Hostile:
    """A column that the network reads is not given."""
    net = network(rng, int(rng.integers(3, 5)))
    case = clean(net, rows(rng, net, 400, 900))
    return Hostile(case.X[:, :-1], case.Y, net.n_hidden, None, unseen="noise on the inputs")


def _series(rng: np.random.Generator, n: int, width: int) -> np.ndarray:
    """Stationary AR(0.9) columns of variance 1."""
    steps = np.sqrt(1.0 - 0.81) * rng.standard_normal((n, width))
    steps[0] /= np.sqrt(1.0 - 0.81)
    out = np.empty_like(steps)
    level = np.zeros(width)
    for i, step in enumerate(steps):
        level = 0.9 * level + step
        out[i] = level
    return out


FAMILIES = (
    repeated_rows,
    half_repeated,
    almost_repeated,
    binary_cube,
    integers,
    lattice_with_counts,
    corner,
    autocorrelated,
    shuffled_autocorrelated,
    sorted_rows,
    collinear_columns,
    one_hot,
    rare_column,
    rare_category,
    constant_column,
    heavy_tailed_inputs,
    sparse_inputs,
    huge_offsets,
    scaled_columns,
    barely_enough,
    few_samples,
    twice_the_parameters,
    clusters,
    on_a_curve,
    leverage,
    single_precision_inputs,
    hidden_column,
)
