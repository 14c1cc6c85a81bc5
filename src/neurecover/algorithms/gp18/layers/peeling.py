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
from neurecover.algorithms.gp18.options import DEFAULTS, UpperOptions
from neurecover.data import ArraySource, Source, Whitening, subsample, unwhiten
from neurecover.fit.model_fit import fit_model
from neurecover.fit.samples import Samples
from neurecover.models import Composite, DeepNetwork, Network, as_network
from neurecover.search import Task
from neurecover.search.candidates import candidates
from neurecover.search.race import Setting
from neurecover.search.settle import settle
from neurecover.solve import Deadline


def can_be_peeled(layer: Composite, activation: Activation) -> bool:
    """Return whether all layers have one activation, piecewise linear with two slopes: what the search knows."""
    return layer.activation == activation and activation.homogeneity == 1.0 and bool(activation.odd_slope)


def peel(
    train: Source,
    layer: Composite,
    widths: tuple[int, ...],
    rng: np.random.Generator,
    deadline: Deadline,
    options: UpperOptions = DEFAULTS.upper,
) -> Composite:
    """Find the network whose first layer is `layer`, up to a small angle, with hidden layers of `widths` above it.

    The layer's own upper part is not looked at. At least one try is made.
    """
    X, Y = subsample(train, 20 * options.peel_samples, int(rng.integers(2**31))).collect()
    rows = _telling(layer.threshold < X @ layer.W.T, options)
    X, Y = X[rows], Y[rows]
    H = layer.hidden(X)
    whitening = Whitening.of(H.mean(axis=0), np.cov(H, rowvar=False, bias=True).reshape(H.shape[1], -1))
    samples = Samples.of(ArraySource(whitening.inputs(H), Y), True)
    task = Task(layer.activation, whitening.rank, Y.shape[1], len(H), True, None, depth=len(widths), layers=widths)
    setting = Setting.plain(task, rng, deadline)
    best, least = layer, np.inf
    for candidate in islice(candidates(samples, setting, widths), options.peel_tries):
        above = unwhiten(as_network(settle(candidate.fit, setting).fit.student), whitening)
        assert isinstance(above, Network | DeepNetwork)
        whole = Composite(layer.W, layer.threshold, above, layer.activation)
        fit = fit_model(ArraySource(X, Y), whole, deadline, max_steps=60, damping=1e-3)
        if fit.rss < least:
            best, least = fit.network, fit.rss
        if fit.relative_rss < options.solved or deadline.passed:
            break
    return best


def _telling(active: np.ndarray, options: UpperOptions) -> np.ndarray:
    """Choose samples by the activity (n, k) of the units: several active, then one, then a few with none."""
    count, n = active.sum(axis=1), options.peel_samples
    several, one = np.flatnonzero(count > 1)[: int(options.together * n)], np.flatnonzero(count == 1)
    return np.concatenate([several, one[: n - len(several)], np.flatnonzero(count == 0)[: options.at_rest]])
