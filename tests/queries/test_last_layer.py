"""The last hidden layer from samples, grids of decimals, and gradients that rounding blinds."""

from itertools import pairwise

import numpy as np

import neurecover as nr
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.fits.upper import find_last_layer
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.deep.span import find_gradient_span
from neurecover.solve.deadline import Deadline


def he_network(dims: tuple[int, ...], seed: int) -> DeepNetwork:
    rng, layers = np.random.default_rng(seed), []
    for d, k in pairwise(dims):
        layers.append((rng.standard_normal((k, d)) * np.sqrt(2.0 / d), 0.1 * rng.standard_normal(k)))
    return DeepNetwork(layers)


def test_the_last_layer_is_found_from_samples_on_rows_that_are_a_little_off():
    solved = 0
    for seed in range(4):
        network, rng = he_network((8, 7, 6, 1), seed).normal_form(), np.random.default_rng(seed)
        box = Box(lambda X, network=network: np.round(network(X), 4), 8)
        (W, b), *_ = network.layers
        rough = (W + 1e-4 * rng.standard_normal(W.shape), b + 1e-4 * rng.standard_normal(b.shape))
        known = KnownLayers(8, (rough,), options=DeepOptions(), errors=np.full(7, 3e-4))
        found = find_last_layer(known, Answers(box, rng), rng, Deadline(None))
        right = found is not None and found.complete and len(found.units) == 6
        solved += right and nr.compare(found.network, network).weight_error < 1e-2
        assert box.queries < 3_000
    assert solved >= 3


def test_layers_that_are_missing_between_are_not_made_up_for():
    """Above the first layer there are two, which no single one reproduces."""
    network, rng = he_network((6, 6, 5, 5, 1), 0).normal_form(), np.random.default_rng(0)
    box = Box(lambda X: network(X).astype(np.float32), 6)
    known = KnownLayers(6, network.layers[:1], options=DeepOptions(), errors=np.full(6, 1e-7))
    assert find_last_layer(known, Answers(box, rng), rng, Deadline(None)) is None


def test_decimals_are_told_from_digits():
    network = he_network((6, 5, 4, 1), 1)

    def digits(X: np.ndarray) -> np.ndarray:
        Y = network(X)
        unit = 10.0 ** (np.floor(np.log10(np.abs(Y) + 1e-300)) - 4)
        return np.round(Y / unit) * unit

    decimals, counted = Box(lambda X: np.round(network(X), 4), 6), Box(digits, 6)
    far = 1e3 * np.random.default_rng(0).standard_normal((5, 6))
    assert np.all(decimals.noise_at(far) < 5e-4)
    assert np.all(counted.noise_at(far) > 100.0 * counted.noise_at(far / 1e3))


def test_gradients_that_rounding_blinds_do_not_narrow_the_span():
    for seed in range(3):
        network = he_network((10, 10, 10, 1), seed)
        box = Box(lambda X, network=network: np.round(network(X), 4), 10)
        assert find_gradient_span(box, np.random.default_rng(seed)).rank == 10
