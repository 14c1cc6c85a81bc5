"""Units that samples show badly, or not at all: merged, tiny, dead, doubled, nearly linear, of signs left open."""

from __future__ import annotations

import numpy as np

from benchmarks.hostile.case import Hostile, clean, either, network, noisy, rows
from neurecover.models import Network, replace_arrays
from neurecover.simulate.counterexamples import sign_ambiguous


def three_at_120_degrees(rng: np.random.Generator) -> Hostile:
    """Σ A_j w_j = 0: all three signs can be reversed together [ATV21, Claim 4.8]."""
    turn = rng.uniform(0.0, 2.0 * np.pi) + 2.0 * np.pi / 3.0 * np.arange(3)
    W = np.column_stack([np.cos(turn), np.sin(turn)])
    net = Network(W, 0.4 * rng.standard_normal(3), np.ones((1, 3)))
    case = either(rng, net, rows(rng, net, 300, 1_200))
    return Hostile(case.X, case.Y, 3, None)


def reversible_signs(rng: np.random.Generator) -> Hostile:
    """A pair of networks with units w_j and −w_j that is one function, with noise or without."""
    k = int(rng.integers(3, 5))
    net, _ = sign_ambiguous(int(rng.integers(2, 4)), k, rng)
    case = either(rng, net, rows(rng, net, 300, 1_200))
    return Hostile(case.X, case.Y, k, None, behind=net)


def nearly_reversible_signs(rng: np.random.Generator) -> Hostile:
    """Σ A_j w_j is 0.1 to 10 standard errors or so from zero."""
    net, _ = sign_ambiguous(int(rng.integers(2, 4)), 3, rng)
    net = replace_arrays(net, W=net.W + 10.0 ** rng.uniform(-3.5, -1.0) * rng.standard_normal(net.W.shape))
    return noisy(rng, net, rows(rng, net, 300, 1_200))


def crowded_plane(rng: np.random.Generator) -> Hostile:
    """Six units in two dimensions, with noise."""
    net = network(rng, 2, 6, 1)
    return noisy(rng, net, rng.standard_normal((800, 2)), 0.03)


def merged_units(rng: np.random.Generator) -> Hostile:
    """Two units at an angle of 1e-5 to 1e-3: hardly a sample lies between their kinks."""
    net = network(rng, k=int(rng.integers(2, 4)), p=1)
    angle = 10.0 ** rng.uniform(-5.0, -3.0)
    W, b, A = net.W.copy(), net.b.copy(), net.A.copy()
    side = rng.standard_normal(net.n_inputs)
    side -= side @ W[0] * W[0]
    W[1], b[1] = np.cos(angle) * W[0] + np.sin(angle) * side / np.linalg.norm(side), b[0]
    A[0, 1] = np.abs(A[0, 1]) * np.sign(A[0, 0])
    truth = Network(W, b, A, net.c)
    return clean(truth, rows(rng, truth))


def tiny_unit(rng: np.random.Generator) -> Hostile:
    """One unit 1e-9 to 1e-12 times as strong as the others."""
    net = network(rng, p=1)
    A = net.A.copy()
    A[0, 0] *= 10.0 ** rng.uniform(-12.0, -9.0)
    truth = replace_arrays(net, A=A)
    return clean(truth, rows(rng, truth))


def faint_unit(rng: np.random.Generator) -> Hostile:
    """One unit at the level of the noise in its own weight."""
    net = network(rng, p=1)
    A = net.A.copy()
    A[0, 0] *= 0.02
    truth = replace_arrays(net, A=A)
    return noisy(rng, truth, rows(rng, truth, 400, 900))


def dead_unit(rng: np.random.Generator) -> Hostile:
    """One unit that no sample switches on."""
    net = network(rng)
    b = net.b.copy()
    b[0] = -7.0
    truth = replace_arrays(net, b=b)
    return either(rng, truth, rows(rng, truth))


def linear_unit(rng: np.random.Generator) -> Hostile:
    """One unit that no sample switches off: an affine function that many others equal."""
    net = network(rng)
    b = net.b.copy()
    b[0] = 7.0
    case = either(rng, replace_arrays(net, b=b), rows(rng, net))
    return Hostile(case.X, case.Y, net.n_hidden, None)


def rarely_on(rng: np.random.Generator) -> Hostile:
    """One unit that a few samples switch on."""
    net = network(rng)
    b = net.b.copy()
    b[0] = -rng.uniform(1.8, 3.0)
    truth = replace_arrays(net, b=b)
    return either(rng, truth, rows(rng, truth))


def rarely_off(rng: np.random.Generator) -> Hostile:
    """One unit that a few samples switch off."""
    net = network(rng)
    b = net.b.copy()
    b[0] = rng.uniform(1.8, 3.0)
    truth = replace_arrays(net, b=b)
    return either(rng, truth, rows(rng, truth))


def all_rare(rng: np.random.Generator) -> Hostile:
    """Every unit switches two to three standard deviations from the mean."""
    net = network(rng, p=1)
    b = rng.uniform(1.6, 2.6, net.n_hidden) * rng.choice([-1.0, 1.0], net.n_hidden)
    truth = replace_arrays(net, b=b)
    return either(rng, truth, rows(rng, truth, 300, 900))


def opposite_twins(rng: np.random.Generator) -> Hostile:
    """relu(z) and relu(−z) with different weights: one kink, two units."""
    net = network(rng, p=1)
    W, b = net.W.copy(), net.b.copy()
    W[1], b[1] = -W[0], -b[0]
    truth = replace_arrays(net, W=W, b=b)
    return either(rng, truth, rows(rng, truth))


def parallel_units(rng: np.random.Generator) -> Hostile:
    """Two units of one direction whose thresholds differ by 0.01 to 0.3."""
    net = network(rng, p=1)
    W, b = net.W.copy(), net.b.copy()
    W[1], b[1] = W[0], b[0] + 10.0 ** rng.uniform(-2.0, -0.5)
    truth = replace_arrays(net, W=W, b=b)
    return either(rng, truth, rows(rng, truth), 0.02)


def doubled_unit(rng: np.random.Generator) -> Hostile:
    """One unit twice, and both are asked for."""
    net = network(rng, p=1)
    W, b = np.vstack([net.W, net.W[:1]]), np.append(net.b, net.b[0])
    truth = Network(W, b, np.hstack([net.A, net.A[:, :1]]), net.c)
    return either(rng, truth, rows(rng, truth))


def cancelling_units(rng: np.random.Generator) -> Hostile:
    """Two units at an angle of 1e-3 to 0.1 with opposite output weights: a faint ridge."""
    net = network(rng, k=3, p=1)
    W, b, A = net.W.copy(), net.b.copy(), net.A.copy()
    W[1] = W[0] + 10.0 ** rng.uniform(-3.0, -1.0) * rng.standard_normal(net.n_inputs)
    b[1], A[0, 1] = b[0], -A[0, 0]
    truth = Network(W, b, A, net.c).normal_form()
    return either(rng, truth, rows(rng, truth), 0.01)


def one_output_unit(rng: np.random.Generator) -> Hostile:
    """A unit that writes to one of three outputs, which reads as corruption of that output."""
    net = network(rng, int(rng.integers(2, 4)), 3, 3)
    A, b = net.A.copy(), net.b.copy()
    A[:, 0], b[0] = [1.0, 0.0, 0.0], -1.2
    truth = Network(net.W, b, A, net.c)
    method = "sparse_noise" if rng.integers(2) else "auto"
    return clean(truth, rows(rng, truth, 300, 600), method=method)


def too_few_asked(rng: np.random.Generator) -> Hostile:
    """One unit less is asked for than there are."""
    net = network(rng, k=int(rng.integers(3, 5)))
    case = either(rng, net, rows(rng, net))
    return Hostile(case.X, case.Y, net.n_hidden - 1, net)


def too_many_asked(rng: np.random.Generator) -> Hostile:
    """One or two units more are asked for than there are."""
    net = network(rng)
    case = either(rng, net, rows(rng, net))
    return Hostile(case.X, case.Y, net.n_hidden + int(rng.integers(1, 3)), net)


def no_biases_assumed(rng: np.random.Generator) -> Hostile:
    """Biases are fixed at zero and the truth has some, small or not."""
    net = network(rng)
    truth = Network(net.W, 10.0 ** rng.uniform(-4.0, 0.0) * net.b, net.A)
    case = either(rng, truth, rows(rng, truth))
    return Hostile(case.X, case.Y, net.n_hidden, truth, bias=False)


FAMILIES = (
    three_at_120_degrees,
    reversible_signs,
    nearly_reversible_signs,
    crowded_plane,
    merged_units,
    tiny_unit,
    faint_unit,
    dead_unit,
    linear_unit,
    rarely_on,
    rarely_off,
    all_rare,
    opposite_twins,
    parallel_units,
    doubled_unit,
    cancelling_units,
    one_output_unit,
    too_few_asked,
    too_many_asked,
    no_biases_assumed,
)
