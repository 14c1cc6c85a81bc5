"""Samples too many to be held, fitted in passes: the network is that of one fit in memory."""

from dataclasses import dataclass

import numpy as np
import pytest

from neurecover.data import ArraySource, Prepared, prepare_samples
from neurecover.data.passes import count_passes
from neurecover.data.views.weights import with_weights
from neurecover.fit import EXACT, FitOptions
from neurecover.fit.descent import PATIENT, descend
from neurecover.fit.model_fit import PassOptions, fit_in_passes
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, Network, as_network, as_student
from students import network

N = 6_000


@dataclass(frozen=True)
class Case:
    """A kind of network, and whether rows have weights."""

    sizes: tuple[int, ...]
    activation: str = "relu"
    bias: bool = True
    affine: bool = False
    weighted: bool = False

    def given(self, noise: float) -> tuple[Prepared, Network | DeepNetwork]:
        """Return streamed samples, and the network that a fit to some of them gives, all in whitened inputs."""
        truth, rng = network(self.sizes, 1, self.activation, self.bias, self.affine), np.random.default_rng(2)
        X = rng.standard_normal((N, self.sizes[0]))
        weight = rng.uniform(0.2, 3.0, N) if self.weighted else None
        Y = truth(X) + noise / np.sqrt(1.0 if weight is None else weight[:, None]) * rng.standard_normal(
            (N, truth.n_outputs)
        )
        source = ArraySource(X, Y)
        rows = source if weight is None else with_weights(source, weight)
        given = prepare_samples(rows, self.bias, np.random.default_rng(3))
        assert given.stream is not None
        W, b = truth.layers[0]
        white = given.whitening  # x = mean + L z
        L = np.linalg.pinv(white.matrix).T
        C = None if truth.C is None else truth.C @ L
        first = (W @ L, b + W @ white.mean)
        last = truth.layers[-1][0], truth.layers[-1][1] + (0.0 if truth.C is None else truth.C @ white.mean)
        near = truth.with_layers([first, *truth.layers[1:-1], last], C)
        return given, self.fitted(given.stream.part(1_000), near)

    def fitted(self, source: ArraySource, start: Network | DeepNetwork) -> Network | DeepNetwork:
        samples = Samples.of(source, self.bias)
        return as_network(descend(samples, as_student(start, self.bias), FitOptions(), slow=PATIENT).student)


CASES = {
    "one layer": Case((4, 3, 2)),
    "one layer, weights": Case((4, 3, 1), "tanh", weighted=True),
    "one layer, no biases": Case((4, 3, 1), bias=False),
    "affine term": Case((4, 3, 2), affine=True),
    "two layers": Case((4, 3, 2, 2), "tanh"),
    "two layers, weights, affine term": Case((4, 3, 2, 2), "tanh", affine=True, weighted=True),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 2**12)


def _held(given: Prepared) -> tuple[ArraySource, ArraySource]:
    """All samples, and those that are not held out, in memory."""
    whole, train = (ArraySource(*part.collect(), weight=part.weights()) for part in (given.samples, given.train))
    return whole, train


@every_case
def test_the_network_is_that_of_a_fit_in_memory(case: Case) -> None:
    given, start = case.given(0.1)
    with count_passes(lambda stage, figure: None) as passes:
        streamed, holdout = fit_in_passes(given, start, case.bias)
    assert streamed.converged
    assert passes.made <= 4
    whole, train = _held(given)
    expected, apart = case.fitted(whole, start), case.fitted(train, start)
    X, Y = whole.collect()
    weight = whole.weights()
    w = np.ones((N, 1)) if weight is None else weight[:, None]
    rss = float(np.sum(w * (Y - expected(X)) ** 2))
    share = rss / Y.size
    # Squared distances of outputs, in standard errors of all weights: a fit is one from the truth.
    assert np.sum(w * (streamed.network(X) - expected(X)) ** 2) < 0.05 * share * start.n_parameters
    # Σr² is that before the last step, which is taken without a further look.
    assert rss * (1.0 - 1e-9) <= streamed.rss <= rss + share * start.n_parameters
    assert streamed.relative_rss == pytest.approx(streamed.rss / np.sum(w * Y**2), rel=1e-6)
    # The held-out rows had no part in what is left on them.
    Z, known = given.holdout.collect()
    held = given.holdout.weights()
    left = np.sum((1.0 if held is None else held[:, None]) * (known - apart(Z)) ** 2, axis=0)
    assert holdout.n == len(Z)
    np.testing.assert_allclose(holdout.sums["residual_squared"], left, rtol=5e-3)


@pytest.mark.parametrize("name", ["one layer", "two layers, weights, affine term"])
def test_without_noise_the_fit_is_exact_after_a_pass_or_two(name: str) -> None:
    given, start = CASES[name].given(0.0)
    with count_passes(lambda stage, figure: None) as passes:
        streamed, _ = fit_in_passes(given, start, True)
    assert streamed.converged
    assert streamed.relative_rss < EXACT
    assert 1 <= passes.made <= 2


def test_a_start_from_afar_goes_downhill_and_says_where_passes_end() -> None:
    case = CASES["one layer"]
    given, start = case.given(0.1)
    layers = [(1.3 * W, b + 0.2) for W, b in start.layers]
    far = start.with_layers(layers, None)
    with count_passes(lambda stage, figure: None) as passes:
        once, _ = fit_in_passes(given, far, True, PassOptions(steps=0))
    assert not once.converged
    assert passes.made == 1
    later, _ = fit_in_passes(given, far, True)
    assert later.rss < once.rss


def test_units_that_no_row_switches_are_moved_away() -> None:
    case = CASES["one layer"]
    given, start = case.given(0.1)
    (W, b), (A, c) = start.layers
    always = start.with_layers([(np.vstack([W, W[:1]]), np.append(b, 30.0)), (np.hstack([A, 0.1 * A[:, :1]]), c)], None)
    moved = fit_in_passes(given, always, True, PassOptions(steps=0))[0].network
    X = given.samples.collect()[0]
    np.testing.assert_allclose(moved(X), always(X), atol=1e-9)
    assert moved.layers[0][1][3] > 50.0
