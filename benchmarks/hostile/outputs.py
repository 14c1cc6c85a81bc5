"""Outputs whose errors are no noise as least squares knows it: rounded, uneven, skewed, gross, or on the wrong side."""

from __future__ import annotations

import numpy as np

from benchmarks.hostile.case import Hostile, clean, network, noisy, rows
from neurecover.models import Network, replace_arrays


def output_scales(rng: np.random.Generator) -> Hostile:
    """Outputs of sizes 1e-6, 1 and 1e6, with noise of their size or without."""
    net = network(rng, p=3)
    scale = 10.0 ** np.array([-6.0, 0.0, 6.0])
    truth = Network(net.W, net.b, net.A * scale[:, None], net.c * scale)
    X = rows(rng, net)
    return noisy(rng, truth, X) if rng.integers(2) else clean(truth, X)


def one_noisy_output(rng: np.random.Generator) -> Hostile:
    """One output with noise, the others without."""
    net = network(rng, p=3)
    X = rows(rng, net)
    Y = net(X)
    Y[:, 0] += 0.1 * rng.standard_normal(len(X))
    return Hostile(X, Y, net.n_hidden, net)


def uneven_outputs(rng: np.random.Generator) -> Hostile:
    """Noise a hundred times larger in one output than in another."""
    net = network(rng, p=3)
    X = rows(rng, net)
    Y = net(X)
    return Hostile(X, Y + np.array([0.3, 0.03, 0.003]) * rng.standard_normal(Y.shape), net.n_hidden, net)


def small_output(rng: np.random.Generator) -> Hostile:
    """A unit that writes to one output only, whose size is 1e-7 of the other's; the large one is clean."""
    net = network(rng, k=3, p=2)
    A, c = net.A.copy(), net.c.copy()
    A[0, 0] = 0.0
    A[1], c[1] = 1e-7 * A[1], 0.0
    truth = Network(net.W, net.b, A, c)
    X = rows(rng, truth)
    Y = truth(X)
    Y[:, 1] += 1e-9 * rng.integers(0, 2) * rng.standard_normal(len(X))
    return Hostile(X, Y, 3, truth)


def rounded(rng: np.random.Generator) -> Hostile:
    """One to four decimals."""
    net = network(rng)
    X = rows(rng, net)
    return Hostile(X, np.round(net(X), int(rng.integers(1, 5))), net.n_hidden, net)


def two_digits(rng: np.random.Generator) -> Hostile:
    """Two or three significant digits."""
    net = network(rng)
    X = rows(rng, net)
    Y, digits = net(X), int(rng.integers(2, 4))
    unit = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(Y), 1e-300))) - digits + 1)
    return Hostile(X, np.round(Y / unit) * unit, net.n_hidden, net)


def half_precision(rng: np.random.Generator) -> Hostile:
    """float16."""
    net = network(rng)
    X = rows(rng, net)
    return Hostile(X, net(X).astype(np.float16).astype(float), net.n_hidden, net)


def single_precision(rng: np.random.Generator) -> Hostile:
    """float32."""
    net = network(rng)
    X = rows(rng, net)
    return Hostile(X, net(X).astype(np.float32).astype(float), net.n_hidden, net)


def single_precision_throughout(rng: np.random.Generator) -> Hostile:
    """Every step of the network in float32, as any framework computes it."""
    net = network(rng)
    X = rows(rng, net)
    W, b, A, c = (getattr(net, name).astype(np.float32) for name in ("W", "b", "A", "c"))
    truth = Network(*(array.astype(float) for array in (W, b, A, c)))
    Y = np.maximum(X.astype(np.float32) @ W.T + b, np.float32(0.0)) @ A.T + c
    return Hostile(X.astype(np.float32).astype(float), Y.astype(float), net.n_hidden, truth)


def heteroscedastic(rng: np.random.Generator) -> Hostile:
    """Noise in proportion to |x₁|."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    Y = net(X)
    return Hostile(X, Y + 0.1 * np.abs(X[:, :1]) * rng.standard_normal(Y.shape), net.n_hidden, net)


def multiplicative(rng: np.random.Generator) -> Hostile:
    """Noise in proportion to the output."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    Y = net(X)
    return Hostile(X, Y * (1.0 + 0.05 * rng.standard_normal(Y.shape)), net.n_hidden, net)


def skewed(rng: np.random.Generator) -> Hostile:
    """Exponential noise of mean zero."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    Y = net(X)
    return Hostile(X, Y + 0.1 * (rng.exponential(1.0, Y.shape) - 1.0), net.n_hidden, net)


def one_sided(rng: np.random.Generator) -> Hostile:
    """Noise that only adds: its mean is part of c, so that c is not the truth's."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    Y = net(X)
    truth = replace_arrays(net, c=net.c + 0.1 * np.sqrt(2.0 / np.pi))
    return Hostile(X, Y + 0.1 * np.abs(rng.standard_normal(Y.shape)), net.n_hidden, truth)


def student_noise(rng: np.random.Generator) -> Hostile:
    """Student's t with three degrees of freedom."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    Y = net(X)
    return Hostile(X, Y + 0.05 * rng.standard_t(3, Y.shape), net.n_hidden, net)


def two_values(rng: np.random.Generator) -> Hostile:
    """An error of ±0.1 and nothing between."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    Y = net(X)
    return Hostile(X, Y + 0.1 * rng.choice([-1.0, 1.0], Y.shape), net.n_hidden, net)


def shared_noise(rng: np.random.Generator) -> Hostile:
    """The same error in all of three outputs."""
    net = network(rng, p=3)
    X = rows(rng, net, 400, 1_200)
    return Hostile(X, net(X) + 0.1 * rng.standard_normal((len(X), 1)), net.n_hidden, net)


def noise_on_inputs(rng: np.random.Generator) -> Hostile:
    """x is measured with an error of 5 to 30 %."""
    net = network(rng)
    X = rows(rng, net, 400, 1_200)
    given = X + rng.uniform(0.05, 0.3) * rng.standard_normal(X.shape)
    return Hostile(given, net(X), net.n_hidden, net, unseen="noise on the inputs")


def outliers(rng: np.random.Generator) -> Hostile:
    """Every hundredth output is gross, among noise or none."""
    net = network(rng)
    X = rows(rng, net, 300, 900)
    Y = net(X) + 0.02 * int(rng.integers(2)) * rng.standard_normal((len(X), net.n_outputs))
    hit = rng.choice(len(X), max(1, len(X) // 100), replace=False)
    Y[hit] += 5.0 * rng.standard_normal((len(hit), net.n_outputs))
    return Hostile(X, Y, net.n_hidden, net)


def one_wrong_row(rng: np.random.Generator) -> Hostile:
    """Exact but for one output, wrong by 1e-9 to 1."""
    net = network(rng)
    X = rows(rng, net)
    Y = net(X)
    Y[int(rng.integers(len(X))), 0] += 10.0 ** rng.uniform(-9.0, 0.0)
    return Hostile(X, Y, net.n_hidden, net)


def permuted(rng: np.random.Generator) -> Hostile:
    """5 % of the rows have each other's outputs."""
    net = network(rng)
    X = rows(rng, net, 300, 900)
    Y = net(X)
    hit = rng.choice(len(X), len(X) // 20, replace=False)
    Y[hit] = Y[rng.permutation(hit)]
    return Hostile(X, Y, net.n_hidden, net)


def clipped(rng: np.random.Generator) -> Hostile:
    """Outputs above the 60 to 99 % point are held there, which is another layer."""
    net = network(rng, p=1)
    X = rows(rng, net, 300, 900)
    whole = net(X)
    Y = np.minimum(whole, np.quantile(whole, rng.uniform(0.6, 0.99)))
    # Where that point is the largest output, of samples with all units off, nothing is clipped.
    truth = net if np.array_equal(Y, whole) else None
    Y = Y + 0.02 * int(rng.integers(2)) * rng.standard_normal(Y.shape)
    return Hostile(X, Y, net.n_hidden, truth)


def selected(rng: np.random.Generator) -> Hostile:
    """Rows whose noisy output is above the 70 % point are missing."""
    net = network(rng, p=1)
    X = rng.standard_normal((1_200, net.n_inputs))
    Y = net(X) + 0.2 * rng.standard_normal((1_200, 1))
    kept = Y[:, 0] < np.quantile(Y, 0.7)
    return Hostile(X[kept], Y[kept], net.n_hidden, net, unseen="rows chosen by their outputs")


def sparse_corruption(rng: np.random.Generator) -> Hostile:
    """Gross errors in 3 % of the outputs, and the method that sets them aside."""
    net = network(rng, int(rng.integers(2, 4)), 2, 3)
    X = rows(rng, net, 300, 600)
    Y = net(X)
    Y = Y + 3.0 * (rng.random(Y.shape) < 0.03) * rng.standard_normal(Y.shape)
    return Hostile(X, Y, 2, net, method="sparse_noise")


def corruption_by_region(rng: np.random.Generator) -> Hostile:
    """One output is off by a constant wherever x₁ is large, and sparse corruption is suspected."""
    net = network(rng, int(rng.integers(2, 4)), 2, 3)
    X = rows(rng, net, 300, 600)
    Y = net(X)
    Y[:, 0] += X[:, 0] > 1.3
    return Hostile(X, Y, 2, None, method="sparse_noise")


def mislaid_column(rng: np.random.Generator) -> Hostile:
    """Two columns of Y are exchanged in 2 % of the rows."""
    net = network(rng, p=2)
    X = rows(rng, net, 300, 900)
    Y = net(X)
    hit = rng.random(len(X)) < 0.02
    Y[hit] = Y[hit][:, ::-1]
    return Hostile(X, Y, net.n_hidden, net)


FAMILIES = (
    output_scales,
    one_noisy_output,
    uneven_outputs,
    small_output,
    rounded,
    two_digits,
    half_precision,
    single_precision,
    single_precision_throughout,
    heteroscedastic,
    multiplicative,
    skewed,
    one_sided,
    student_noise,
    two_values,
    shared_noise,
    noise_on_inputs,
    outliers,
    one_wrong_row,
    permuted,
    clipped,
    selected,
    sparse_corruption,
    corruption_by_region,
    mislaid_column,
)
