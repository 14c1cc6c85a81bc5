"""From a lowest layer to a whole network: the upper part on hidden values, then all parameters together [GP18, App. E].

Each step is a function from one frozen value to the next:

    layer ──► fit_upper ──► fit_jointly
"""

from __future__ import annotations

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms.gp18.layers.peeling import can_be_peeled, peel
from neurecover.algorithms.gp18.layers.step_two import NEVER
from neurecover.algorithms.gp18.layers.upper import Hidden, fit_polynomial
from neurecover.algorithms.gp18.options import DEFAULTS, UpperOptions
from neurecover.data import ArraySource, Source, Whitening, reduce, subsample, unwhiten
from neurecover.fit.model_fit import can_be_fitted, fit_model
from neurecover.models import Composite, DeepNetwork, Network, Upper, parameters
from neurecover.search import SearchOptions, Task
from neurecover.search.network import search_network
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

UPPERS = ("polynomial", "network", "deep")


def fit_upper(
    train: Source,
    layer: Composite,
    upper: str = "polynomial",
    *,
    rng: np.random.Generator,
    n_upper: int | tuple[int, ...] | None = None,
    max_degree: int = 3,
    activation: str | Activation = "relu",
    deadline: Deadline = NEVER,
    options: UpperOptions = DEFAULTS.upper,
) -> Composite:
    """Return the layer with an upper part fitted to its hidden values; the layer's own upper part is not looked at.

    upper is "polynomial", sparse and of degree up to max_degree; "network", one hidden layer of n_upper units (None
    finds them) by the finisher, or peeled where that needs more; or "deep", hidden layers of the widths n_upper. These
    are peeled one by one, which moves the given layer too; where that is not possible, as for another activation than
    the layer's, they are found by least squares from random starts. activation is that of the upper network.
    """
    if upper not in UPPERS:
        raise ValueError(f"upper must be one of {', '.join(UPPERS)}. Got {upper!r} instead.")
    if max_degree < 1:
        raise ValueError(f"max_degree needs to be a whole number from 1. Got {max_degree!r} instead.")
    act = activations.get(activation)
    hidden = Hidden(train, layer)
    top: Upper
    if upper == "polynomial":
        seed = int(rng.integers(2**31))
        top = fit_polynomial(hidden, seed, max_degree=max_degree, options=options).polynomial
    elif upper == "network":
        if isinstance(n_upper, tuple):
            raise ValueError(f"upper='network' has one hidden layer, so n_upper is one number. Got {n_upper} instead.")
        peelable = n_upper is not None and can_be_peeled(layer, act)
        within = deadline.share(options.first_share) if peelable else deadline
        descents = options.first_descents if peelable else SearchOptions().max_fits
        top, exact = _upper_network(hidden, n_upper, act, rng, within, descents, options)
        if n_upper is not None and not exact and peelable:
            # The values of a layer that is a little off are no function of so few units: the layer has to move too.
            wider = Composite(layer.W, layer.threshold, top, layer.activation)
            peeled = peel(train, layer, (n_upper,), rng, deadline, options)
            return max(peeled, wider, key=lambda found: explained_variance(found, train))
    else:
        if not isinstance(n_upper, tuple) or not n_upper:
            raise ValueError(f"upper='deep' needs the widths of its layers, as n_upper=(6, 4). Got {n_upper} instead.")
        if can_be_peeled(layer, act):
            return _peeled_or_descended(train, layer, n_upper, rng, deadline, options)
        top = _upper_deep(hidden, n_upper, act, rng, deadline, options)
    return Composite(layer.W, layer.threshold, top, layer.activation)


def _peeled_or_descended(
    train: Source,
    layer: Composite,
    widths: tuple[int, ...],
    rng: np.random.Generator,
    deadline: Deadline,
    options: UpperOptions,
) -> Composite:
    """Return the better of peeling and random descents: units that never switch cannot be peeled."""
    peeled = peel(train, layer, widths, rng, deadline.share(options.first_share), options)
    if explained_variance(peeled, train) > 1.0 - options.peeled:
        return peeled
    top = _upper_deep(Hidden(train, layer), widths, layer.activation, rng, deadline, options)
    descended = Composite(layer.W, layer.threshold, top, layer.activation)
    return max(peeled, descended, key=lambda found: explained_variance(found, train))


def fit_jointly(
    network: Composite,
    train: Source,
    holdout: Source,
    rng: np.random.Generator,
    options: UpperOptions = DEFAULTS.upper,
) -> Composite:
    """Fit all parameters jointly; return the result if it does better on held-out samples, else the network."""
    size = parameters(network).size
    wanted = max(options.joint_load * size, int(options.joint_work / size**2))
    X, Y = subsample(train, 10 * wanted, int(rng.integers(2**31))).collect()
    kept = _awake(X @ network.W.T - network.threshold, wanted, options)
    if not can_be_fitted(network) or size >= Y[kept].size:
        return network
    better = fit_model(ArraySource(X[kept], Y[kept]), network, max_steps=60, damping=1e-3).network
    return better if explained_variance(better, holdout) >= explained_variance(network, holdout) else network


def explained_variance(network: Composite, samples: Source) -> float:
    """Return the share of the outputs' variance that the network explains."""
    residuals = reduce(samples, Residuals(network, samples.n_outputs, 4 * network.n_hidden))
    return float(1.0 - residuals.mse / max(float(residuals.output_variance.mean()), 1e-300))


def _upper_network(
    hidden: Hidden,
    n_upper: int | None,
    activation: Activation,
    rng: np.random.Generator,
    deadline: Deadline,
    max_descents: int,
    options: UpperOptions,
) -> tuple[Network, bool]:
    """Return the network on hidden values, and whether it leaves nothing but rounding."""
    H, Y = _upper_samples(hidden, rng, options)
    whitening = Whitening.of(H.mean(axis=0), np.cov(H, rowvar=False, bias=True).reshape(H.shape[1], -1))
    source = ArraySource(whitening.inputs(H), Y)
    task = Task(activation, whitening.rank, Y.shape[1], len(H), True, n_upper)
    found = search_network(source, task, rng, deadline, options=SearchOptions(max_fits=max_descents))
    network = unwhiten(found.network, whitening)
    assert isinstance(network, Network)
    return network, found.exact


def _upper_deep(
    hidden: Hidden,
    widths: tuple[int, ...],
    activation: Activation,
    rng: np.random.Generator,
    deadline: Deadline,
    options: UpperOptions,
) -> DeepNetwork:
    """Return the best of several descents, each from Gaussian weights of variance 2/(fan-in)."""
    H, Y = _upper_samples(hidden, rng, options)
    size = np.maximum(np.sqrt(np.mean(H**2, axis=0)), 1e-300)
    shapes = list(zip((*widths, Y.shape[1]), (H.shape[1], *widths)))
    best, least = None, np.inf
    for _ in range(options.deep_starts):
        layers = [
            (rng.standard_normal(shape) * np.sqrt(2.0 / shape[1]), 0.1 * rng.standard_normal(shape[0]))
            for shape in shapes
        ]
        layers[0] = (layers[0][0] / size, layers[0][1])
        fit = fit_model(ArraySource(H, Y), DeepNetwork(layers, activation), deadline, max_steps=200, damping=1e-2)
        loss = fit.rss / max(float(Y.size * Y.var()), 1e-300)
        if loss < least:
            best, least = fit.network, loss
        if least < options.solved or deadline.passed:
            break
    assert best is not None
    return best


def _upper_samples(hidden: Hidden, rng: np.random.Generator, options: UpperOptions) -> tuple[np.ndarray, np.ndarray]:
    H, Y = subsample(hidden, 10 * options.samples, int(rng.integers(2**31))).collect()
    kept = _awake(np.where(H > 0.0, 0.0, -np.inf), options.samples, options)
    return H[kept], Y[kept]


def _awake(depth: np.ndarray, wanted: int, options: UpperOptions) -> np.ndarray:
    """Return the rows to fit on, given W x − t (n, k): those with a unit active or nearly active, and a few others."""
    idle = np.flatnonzero(~np.any(depth > -options.near_threshold, axis=1))
    return np.setdiff1d(np.arange(len(depth)), idle[options.at_rest :])[:wanted]
