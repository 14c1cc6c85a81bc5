"""The layers above a known first one, peeled one after the other [GP18, Appendix E].

The values of a layer that is known are the inputs of what is above it, whose own lowest layer is sought in them as the
first was in x, and so on up. They are not Gaussian, so that no moments show it: the search is the one for
several layers, which finds the planes of the lowest layer first and is then left with one layer less.

A first layer that is off by an angle leaves a residual of that size whatever is above it, so every try ends with a fit
of all layers together. Without noise a residual at the level of rounding says that the try was right.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.gp18.options import DEFAULTS
from neurecover.data import ArraySource, Source, Whitening, subsample, unwhiten
from neurecover.fit.model_fit import fit_model
from neurecover.fit.samples import Samples
from neurecover.models import Composite, DeepNetwork, Network, as_network
from neurecover.search import Task
from neurecover.search.candidates import candidates
from neurecover.search.race import Setting
from neurecover.search.settle import settle
from neurecover.solve import Deadline

_SAMPLES = 6_000  # that the tries look at
_TOGETHER = 0.7  # of them at most have several active units: one alone shows the part above along one axis
_AT_REST = 100  # samples without an active unit: they all have the same output
_TRIES = 16  # candidates at most; the first that leaves nothing but rounding ends them
_STEPS = 60  # of the fit of all layers


def can_be_peeled(layer: Composite, activation: Activation) -> bool:
    """Return whether all layers have one activation, piecewise linear with two slopes: what the search knows."""
    return layer.activation == activation and activation.homogeneity == 1.0 and bool(activation.odd_slope)


def peel(
    train: Source, layer: Composite, widths: tuple[int, ...], rng: np.random.Generator, deadline: Deadline
) -> Composite:
    """Find the network whose first layer is `layer`, up to a small angle, with hidden layers of `widths` above it.

    The layer's own upper part is not looked at. At least one try is made.
    """
    X, Y = subsample(train, 20 * _SAMPLES, int(rng.integers(2**31))).collect()
    rows = _telling(layer.threshold < X @ layer.W.T)
    X, Y = X[rows], Y[rows]
    H = layer.hidden(X)
    whitening = Whitening.of(H.mean(axis=0), np.cov(H, rowvar=False, bias=True).reshape(H.shape[1], -1))
    samples = Samples.of(ArraySource(whitening.inputs(H), Y), True)
    task = Task(layer.activation, whitening.rank, Y.shape[1], len(H), True, None, depth=len(widths), layers=widths)
    setting = Setting.plain(task, rng, deadline)
    best, least = layer, np.inf
    for candidate in islice(candidates(samples, setting, widths), _TRIES):
        above = unwhiten(as_network(settle(candidate.fit, setting).fit.student), whitening)
        assert isinstance(above, Network | DeepNetwork)
        whole = Composite(layer.W, layer.threshold, above, layer.activation)
        fit = fit_model(ArraySource(X, Y), whole, deadline, _STEPS, damping=1e-3)
        if fit.rss < least:
            best, least = fit.network, fit.rss
        if fit.relative_rss < DEFAULTS.upper.solved or deadline.passed:
            break
    return best


def _telling(active: np.ndarray) -> np.ndarray:
    """Choose samples by the activity (n, k) of the units: several active, then one, then a few with none."""
    count = active.sum(axis=1)
    several, one = np.flatnonzero(count > 1)[: int(_TOGETHER * _SAMPLES)], np.flatnonzero(count == 1)
    return np.concatenate([several, one[: _SAMPLES - len(several)], np.flatnonzero(count == 0)[:_AT_REST]])
