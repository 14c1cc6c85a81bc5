"""Step 2: the angle in slabs, its searches, the likelihood of unions; noisy outputs; whole networks."""

import numpy as np
import pytest
from scipy.special import ndtr

from neurecover.algorithms.gp18.layers import lowest_layer
from neurecover.algorithms.gp18.layers.activity import find_activity
from neurecover.algorithms.gp18.layers.lowest_layer import two_steps
from neurecover.algorithms.gp18.layers.step_two import Boundary, boundary
from neurecover.algorithms.gp18.layers.tan_alpha import estimate_tan_alpha, refine_estimate
from neurecover.algorithms.gp18.layers.upper import Hidden, fit_polynomial
from neurecover.algorithms.gp18.layers.whole import explained_variance, fit_jointly, fit_upper
from neurecover.algorithms.gp18.options import LayerOptions
from neurecover.algorithms.gp18.union.fit import fit_union
from neurecover.algorithms.gp18.union.splits import splits
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.fit.model_fit import fit_model
from neurecover.matching import compare
from neurecover.models import Composite, DeepNetwork, Network, Or, Polynomial, parameters, with_parameters
from neurecover.simulate.composites import composite_teacher, products, tower, union
from neurecover.statistics.fits.union_score import UnionScore


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_tan_alpha_of_a_known_angle(alpha: float) -> None:
    X = np.random.default_rng(0).standard_normal((200_000, 4))
    z = np.array([np.cos(alpha), np.sin(alpha), 0.0, 0.0])
    angle = estimate_tan_alpha(z, X, X[:, 0] > 1.5)
    assert angle.tan == pytest.approx(np.tan(alpha), rel=0.15)
    assert angle.threshold == pytest.approx(1.5, abs=0.02)


def test_tan_alpha_says_when_nothing_is_crossed() -> None:
    X = np.random.default_rng(0).standard_normal((1_000, 3))
    assert np.isnan(estimate_tan_alpha(np.eye(3)[0], X, np.ones(1_000, dtype=bool)).tan)
    assert np.isnan(estimate_tan_alpha(np.eye(3)[0], X[:50], X[:50, 0] > 0.0).tan)


@pytest.mark.parametrize("alpha", [0.9, 1.2])
def test_tan_alpha_is_not_made_up_where_samples_end(alpha: float) -> None:
    """At 1.2 rad the activity is 0.4 at z·x = 1.5/cos α − 0.25 tan α = 3.5, where no slab has enough samples."""
    X = np.random.default_rng(0).standard_normal((200_000, 4))
    z = np.array([np.cos(alpha), np.sin(alpha), 0.0, 0.0])
    angle = estimate_tan_alpha(z, X, X[:, 0] > 1.5)
    assert np.isnan(angle.tan) or angle.tan == pytest.approx(np.tan(alpha), rel=4.0 * angle.relative_error)
    assert alpha < 1.0 or np.isnan(angle.tan)


def test_the_relative_error_of_an_angle_is_that_of_binomial_shares() -> None:
    rng = np.random.default_rng(0)
    z = np.array([np.cos(0.2), np.sin(0.2)])
    angles = [estimate_tan_alpha(z, X, X[:, 0] > 1.5) for X in rng.standard_normal((60, 40_000, 2))]
    expected = np.median([angle.relative_error for angle in angles]) * np.tan(0.2)
    # The spread of 60 values is known to 1/√120; the crossing that a binary search meets first is one of several.
    assert 0.6 < np.std([angle.tan for angle in angles]) / expected < 1.5


def test_the_angle_that_a_refinement_reports_had_no_part_in_the_choice() -> None:
    """Of the trials that a search keeps, the smallest estimates are those that noise favours: 0.08 for 0.13 before."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40_000, 5))
    z = np.append(np.cos(0.15), np.full(4, 0.5 * np.sin(0.15)))
    found = refine_estimate(z, X, X[:, 0] > 1.5, rng, max_estimates=150)
    left = np.arccos(found.z[0])
    assert found.angle.tan == pytest.approx(np.tan(left), rel=4.0 * found.angle.relative_error)


@pytest.mark.parametrize("eps", [0.2, 0.4])
def test_a_wide_slab_is_accounted_for(eps: float) -> None:
    """At 0.1 rad slabs of 0.2 and 0.4 would show 0.12 and 0.17 if they were taken for thin."""
    rng = np.random.default_rng(0)
    z = np.array([np.cos(0.1), np.sin(0.1)])
    angles = [estimate_tan_alpha(z, X, X[:, 0] > 1.5, eps) for X in rng.standard_normal((20, 100_000, 2))]
    values = [angle.tan for angle in angles]
    assert np.mean(values) == pytest.approx(np.tan(0.1), rel=0.05)
    assert 0.5 < np.std(values) / np.median([angle.relative_error * angle.tan for angle in angles]) < 1.5


def test_an_angle_below_its_error_is_not_reported_as_zero() -> None:
    X = np.random.default_rng(0).standard_normal((20_000, 3))
    angle = estimate_tan_alpha(np.eye(3)[0], X, X[:, 0] > 1.0, eps=0.2)
    assert 0.0 < angle.tan < 0.06
    assert angle.relative_error == 1.0


def test_refinement_ends_where_its_samples_end() -> None:
    """Two inputs take slabs of 720 samples: of 30,000 there are 2,000 in one at 0.15 rad, of 3,000 there are 200."""
    left, doubts = {}, {}
    for n in (3_000, 30_000):
        ends = []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            X, z = rng.standard_normal((n, 2)), np.array([np.cos(0.15), np.sin(0.15)])
            ends.append(refine_estimate(z, X, X[:, 0] > 1.0, rng, max_estimates=200))
        left[n] = np.median([np.arccos(end.z[0]) for end in ends])
        doubts[n] = np.median([end.doubt for end in ends])
    assert left[30_000] < 0.06
    assert doubts[3_000] > 2.0
    assert doubts[30_000] < doubts[3_000]


@pytest.mark.parametrize("flips", [None, np.array([0.03, 0.2])])
def test_union_score_against_differences_and_merging(flips: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    V, tau = rng.standard_normal((2, 3)), np.array([0.5, 1.0])
    X, y = rng.standard_normal((300, 3)), (rng.random((300, 1)) < 0.4).astype(float)
    score = UnionScore(V, tau, flips=flips)
    score.update(X, y)
    theta = np.concatenate([np.column_stack([V, tau]).ravel(), np.zeros(2) if flips is None else flips])

    def value(theta: np.ndarray) -> float:
        units = theta[:8].reshape(2, 4)
        other = UnionScore(units[:, :3], units[:, 3], False, None if flips is None else theta[8:])
        other.update(X, y)
        return float(other.sums["log_likelihood"])

    e = 1e-6
    numeric = np.array([(value(theta + e * s) - value(theta - e * s)) / (2 * e) for s in np.eye(10)])
    np.testing.assert_allclose(score.sums["score"].ravel(), numeric[:8], rtol=1e-4, atol=1e-4)
    if flips is not None:
        np.testing.assert_allclose(score.sums["flip_score"], numeric[8:], rtol=1e-4)
    first, second = UnionScore(V, tau, flips=flips), UnionScore(V, tau, flips=flips)
    first.update(X[:100], y[:100])
    second.update(X[100:], y[100:])
    first.merge(second)
    np.testing.assert_allclose(first.information, score.information)


@pytest.mark.parametrize("flips", [None, np.array([0.03, 0.2])])
def test_information_is_the_variance_of_the_score(flips: np.ndarray | None) -> None:
    """Labels drawn from the model itself: E[score scoreᵀ] is the Fisher information."""
    V, tau = np.array([[1.5, 0.0], [0.0, 1.0]]), np.array([0.5, 0.3])
    x = np.random.default_rng(0).standard_normal((1, 2))
    outside = np.prod(ndtr(tau - x @ V.T))
    chance = 1 - outside if flips is None else flips[0] * outside + (1 - flips[1]) * (1 - outside)
    scores = []
    for label in (0.0, 1.0):
        one = UnionScore(V, tau, flips=flips)
        one.update(x, np.array([[label]]))
        own = one.sums["score"].ravel()
        scores.append(own if flips is None else np.concatenate([own, one.sums["flip_score"]]))
    np.testing.assert_allclose((1 - chance) * scores[0] + chance * scores[1], 0.0, atol=1e-12)
    expected = (1 - chance) * np.outer(scores[0], scores[0]) + chance * np.outer(scores[1], scores[1])
    np.testing.assert_allclose(one.information, expected, atol=1e-12)


def test_the_score_stays_finite_far_from_the_boundary() -> None:
    score = UnionScore(np.array([[1e8, 0.0]]), np.array([-1e8]), flips=np.array([0.01, 0.01]))
    score.update(np.array([[5.0, 1.0], [-5.0, 1.0]]), np.array([[0.0], [1.0]]))
    assert all(np.all(np.isfinite(value)) for value in score.sums.values())


def test_the_two_steps_with_thresholds_of_their_own() -> None:
    truth = composite_teacher(5, 4, products(4), threshold=[1.3, 1.4, 1.5, 1.6], random_state=1)
    X = np.random.default_rng(0).standard_normal((40_000, 5))
    layer = two_steps(ArraySource(X, truth(X)), "relu", np.random.default_rng(0))
    comparison = compare(Composite(layer.W, layer.threshold, Or()), truth)
    assert layer.certain
    assert comparison.max_angle < 0.01
    assert comparison.bias_error < 0.01
    assert layer.tan_alpha.max() < 0.05


def test_constant_outputs_are_unsolvable() -> None:
    X = np.random.default_rng(0).standard_normal((2_000, 4))
    with pytest.raises(UnsolvableError, match="no unit is ever seen"):
        two_steps(ArraySource(X, np.full(len(X), 2.0)), "relu", np.random.default_rng(0), n_hidden=4)


@pytest.mark.parametrize("outputs", ["sigmoid", "low", "non-monotone"])
def test_what_cannot_be_certain_is_said(outputs: str) -> None:
    X = np.random.default_rng(0).standard_normal((20_000, 4))
    activation = "sigmoid" if outputs == "sigmoid" else "relu"
    if outputs == "sigmoid":
        y = composite_teacher(4, 4, products(4, 1), threshold=3.0, activation="sigmoid", random_state=0)(X)[:, 0]
        words = "those of Step 1"
    elif outputs == "low":
        y, words = (
            composite_teacher(4, 4, products(4), threshold=0.1, random_state=0)(X)[:, 0],
            "thresholds are too low",
        )
    else:
        y = composite_teacher(4, 4, products(4, 1, linear=[1.0, 1.0, 1.0, -1.0]), random_state=0)(X)[:, 0]
        words = "not monotone"
    layer = two_steps(ArraySource(X, y), activation, np.random.default_rng(0), n_hidden=4)
    assert not layer.certain
    assert any(words in note for note in layer.notes), layer.notes


def test_a_layer_that_predicts_too_little_activity_is_not_certain() -> None:
    truth = composite_teacher(4, 3, products(3), random_state=2)
    X = np.random.default_rng(0).standard_normal((20_000, 4))
    seen = find_activity(truth(X))
    assert seen is not None
    for k, certain in ((3, True), (2, False)):  # all units, and one too few
        active = np.any(truth.threshold[:k] < X @ truth.W[:k].T, axis=1)
        agreement = float(np.mean(active == (seen.of(truth(X)) > 0.5)))
        end = Boundary(truth.W[:k], truth.threshold[:k], np.zeros(k), agreement, len(X), ())
        notes: list[str] = []
        assert lowest_layer._certain(seen, end, notes, LayerOptions()) == certain
        assert any("less than a correct layer reaches" in note for note in notes) != certain


def test_noisy_outputs_at_rest_are_seen() -> None:
    rng = np.random.default_rng(0)
    truth = composite_teacher(5, 4, products(4, constant=0.7), random_state=0)
    X = rng.standard_normal((20_000, 5))
    clean = truth(X)
    sigma = 0.03 * clean.std()
    seen = find_activity(clean + sigma * rng.standard_normal(clean.shape))
    assert seen is not None
    assert seen.noisy
    assert seen.rest[0] == pytest.approx(0.7, abs=0.3 * sigma)
    assert seen.noise[0] == pytest.approx(sigma, rel=0.2)
    wrong = seen.of(clean + sigma * rng.standard_normal(clean.shape)) != (clean[:, 0] != 0.7)
    assert wrong.mean() < 0.05
    assert find_activity(rng.standard_normal((5_000, 1))) is None  # one bell, no peak in it


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_the_lowest_layer_of_noisy_outputs(noise: float) -> None:
    truth = composite_teacher(6, 4, products(4), random_state=7)
    rng = np.random.default_rng(0)
    X, Xh = rng.standard_normal((20_000, 6)), rng.standard_normal((2_000, 6))
    spread = noise * truth(X).std()
    train = ArraySource(X, truth(X) + spread * rng.standard_normal((len(X), 1)))
    holdout = ArraySource(Xh, truth(Xh) + spread * rng.standard_normal((len(Xh), 1)))
    layer = two_steps(train, "relu", rng, n_hidden=4)
    given = Composite(layer.W, layer.threshold, Or())
    assert compare(given, truth).max_angle < 0.05
    whole = fit_jointly(fit_upper(train, given, rng=rng), train, holdout, rng)
    # Each unit has some 1,300 active samples for its 7 numbers, so noise leaves about 0.05·√(7/1300) of its slope.
    assert compare(whole, truth).max_angle < 0.01
    assert explained_variance(whole, holdout) == pytest.approx(1.0 / (1.0 + noise**2), abs=0.5 * noise**2)


def test_several_outputs_are_read_together() -> None:
    base = products(4)
    rng = np.random.default_rng(2)
    upper = Polynomial(base.exponents, rng.uniform(0.3, 1.5, (3, len(base.exponents))))
    truth = composite_teacher(5, 4, upper, random_state=3)
    X = rng.standard_normal((20_000, 5))
    layer = two_steps(ArraySource(X, truth(X)), "relu", rng)
    assert layer.step_one.weights[2].shape == (3, 4)
    assert layer.certain
    assert compare(Composite(layer.W, layer.threshold, upper), truth).max_angle < 0.02


def test_a_bad_start_is_replaced_in_the_second_step() -> None:
    """Step 2 finds the units by itself where Step 1 was of no use, and their number too if it may."""
    truth = composite_teacher(4, 3, union(), threshold=1.3, kind="orthonormal", activation="step", random_state=0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8_000, 4))
    active = truth(X)[:, 0] > 0.5
    for W, counted in ((truth.W[[0, 0, 0]] + 0.1 * rng.standard_normal((3, 4)), False), (truth.W[:1], True)):
        found = boundary(X, active, W, rng, counted=counted)
        comparison = compare(Composite(found.W, found.threshold, Or(), "step"), truth)
        assert comparison.unmatched == ((), ())
        assert comparison.max_angle < 0.05


def test_a_unit_between_two_is_split() -> None:
    """One halfspace for two at an angle of 0.7: their mean shows nothing, the spread of what is missed does."""
    W = np.array([[np.cos(0.35), np.sin(0.35), 0.0], [np.cos(0.35), -np.sin(0.35), 0.0]])
    X = np.random.default_rng(0).standard_normal((10_000, 3))
    labels = ArraySource(X, np.any(X @ W.T > 1.5, axis=1).astype(float))
    merged = fit_union(labels, np.array([[1.0, 0.05, 0.0]]), np.array([1.4]), flips=np.full(2, 0.02))
    starts = splits(labels, merged)
    assert len(starts) == 1
    found = fit_union(labels, starts[0].W, starts[0].threshold, starts[0].tan_alpha, flips=starts[0].flips)
    assert (W @ found.W.T).max(axis=1).min() > 0.999
    right = fit_union(labels, W, np.full(2, 1.5), flips=np.full(2, 0.02))
    assert splits(labels, right) == []


def test_polynomial_upper_part_is_fitted_exactly_on_the_true_layer() -> None:
    truth = composite_teacher(5, 4, products(4, constant=0.3), random_state=0)
    X = np.random.default_rng(0).standard_normal((20_000, 5))
    fit = fit_polynomial(Hidden(ArraySource(X, truth(X)), truth), 0)
    assert fit.degree == 2
    assert fit.r2 > 1 - 1e-10
    H = truth.hidden(X)
    np.testing.assert_allclose(fit.polynomial(H), truth.upper(H), atol=1e-6)


@pytest.mark.parametrize("upper", [products(3), tower(3, (2,), random_state=0)])
def test_joint_fit(upper) -> None:  # type: ignore[no-untyped-def]
    truth = composite_teacher(4, 3, upper, threshold=1.0, random_state=0)
    X = np.random.default_rng(0).standard_normal((3_000, 4))
    theta = parameters(truth)
    near = with_parameters(truth, theta + 1e-3 * np.random.default_rng(1).standard_normal(len(theta)))
    fit = fit_model(ArraySource(X, truth(X)), near, max_steps=60, damping=1e-3)
    assert fit.converged
    assert fit.rss < 1e-12
    assert compare(fit.network, truth).layers[0].max_angle < 1e-6  # the upper units never switch


@pytest.mark.parametrize(
    ("upper", "n_upper", "kind"),
    [("polynomial", None, Polynomial), ("network", 2, Network), ("deep", (2, 2), DeepNetwork)],
)
def test_a_layer_becomes_a_whole_network(upper: str, n_upper: int | tuple[int, ...] | None, kind: type) -> None:
    above = products(3) if upper == "polynomial" else tower(3, (2,) if upper == "network" else (2, 2), random_state=0)
    truth = composite_teacher(5, 3, above, threshold=1.2, random_state=0)
    rng = np.random.default_rng(0)
    X, Xh = rng.standard_normal((30_000, 5)), rng.standard_normal((5_000, 5))
    train, holdout = ArraySource(X, truth(X)), ArraySource(Xh, truth(Xh))
    layer = two_steps(train, "relu", rng, n_hidden=3)
    given = Composite(layer.W, layer.threshold, Or())
    fitted = fit_upper(train, given, upper, rng=rng, n_upper=n_upper)
    assert isinstance(fitted.upper, kind)
    if upper == "polynomial":
        np.testing.assert_array_equal(fitted.W, given.W)
    if upper == "network":  # no function of two units on values that are a little off: the layer moves too
        assert explained_variance(fitted, holdout) > 1 - 1e-9
    whole = fit_jointly(fitted, train, holdout, rng)
    assert explained_variance(whole, holdout) >= explained_variance(fitted, holdout) > 0.99
    if upper != "deep":  # its own descents may end in another minimum that explains nearly all
        assert explained_variance(whole, holdout) > 1 - 1e-9
        assert compare(whole, truth).layers[0].max_angle < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_that_is_right_stays_as_it_is_below_a_network(seed: int) -> None:
    truth = composite_teacher(4, 3, tower(3, (2,), random_state=seed), threshold=0.5, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((20_000, 4))
    given = Composite(truth.W, truth.threshold, Or())
    rng = np.random.default_rng(seed)
    fitted = fit_upper(ArraySource(X, truth(X)), given, "network", rng=rng, n_upper=2)
    np.testing.assert_array_equal(fitted.W, given.W)
    assert explained_variance(fitted, ArraySource(X, truth(X))) > 1 - 1e-12


def test_fit_upper_refuses() -> None:
    X = np.random.default_rng(0).standard_normal((500, 3))
    source, layer = ArraySource(X, X[:, 0]), Composite(np.eye(3), np.ones(3), Or())
    for upper, n_upper, words in (("tree", None, "one of"), ("deep", None, "widths"), ("network", (2,), "one number")):
        with pytest.raises(ValueError, match=words):
            fit_upper(source, layer, upper, rng=np.random.default_rng(0), n_upper=n_upper)
    with pytest.raises(ValueError, match="max_degree"):
        fit_upper(source, layer, rng=np.random.default_rng(0), max_degree=0)


def test_a_score_of_samples_without_a_class_counts_them() -> None:
    X = np.random.default_rng(0).standard_normal((500, 3))
    assert reduce(ArraySource(X, np.ones(500)), UnionScore(np.eye(3), np.ones(3))).n == 500


def test_fit_union_repairs_a_doubled_unit() -> None:
    truth = composite_teacher(4, 3, union(), threshold=1.3, kind="orthonormal", activation="step", random_state=0)
    X = np.random.default_rng(0).standard_normal((20_000, 4))
    start = truth.W[[0, 0, 1]] + 0.05 * np.random.default_rng(1).standard_normal((3, 4))
    fit = fit_union(ArraySource(X, truth(X)), start, np.full(3, 1.3))
    assert fit.error < 1e-3
    assert np.mean(fit.contains(X) == (truth(X)[:, 0] > 0.5)) > 0.999
