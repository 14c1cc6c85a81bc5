"""Step 2: the angle in slabs, its searches, the likelihood of unions; halfspace classifiers; whole networks."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.utils.estimator_checks import parametrize_with_checks

from neurecover.algorithms.gp18.joint import fit_all
from neurecover.algorithms.gp18.lowest_layer import two_steps
from neurecover.algorithms.gp18.tan_alpha import estimate_tan_alpha, refine_estimate, turn_estimate
from neurecover.algorithms.gp18.union import fit_union
from neurecover.algorithms.gp18.upper import Hidden, fit_polynomial
from neurecover.algorithms.gp18.whole import explained, fit_upper, polished
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.interop.halfspaces import HalfspaceIntersection, HalfspaceUnion
from neurecover.matching import compare
from neurecover.models import Composite, DeepNetwork, Network, Or, Polynomial, parameters, with_parameters
from neurecover.simulate.composites import composite_teacher, products, tower, union
from neurecover.solve import Deadline
from neurecover.statistics.union_score import UnionScore


@parametrize_with_checks([HalfspaceUnion(), HalfspaceIntersection(n_halfspaces=2)])
def test_scikit_learn_estimator_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


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


def test_both_searches_reduce_the_angle() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50_000, 4))
    active = X[:, 0] > 1.5
    z = np.array([np.cos(0.3), np.sin(0.3), 0.0, 0.0])
    paper = refine_estimate(z, X, active, rng, max_estimates=150)
    turned = turn_estimate(z, X, active)
    assert paper.z[0] > z[0]
    assert np.arccos(turned.z[0]) < 0.03
    assert turned.estimates < 30


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


@pytest.mark.parametrize(("cls", "inside"), [(HalfspaceUnion, 1), (HalfspaceIntersection, 0)])
def test_halfspaces_of_shifted_correlated_inputs(cls, inside: int) -> None:  # type: ignore[no-untyped-def]
    truth = composite_teacher(5, 3, union(), threshold=1.6, activation="step", random_state=2)
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((15_000, 5))
    mix, mean = np.eye(5) + 0.3 * rng.standard_normal((5, 5)), rng.standard_normal(5)
    X = Z @ mix.T + mean
    y = (truth(Z)[:, 0] == inside).astype(int)
    model = cls(random_state=0).fit(X, y)
    normals = np.linalg.solve(mix.T, truth.W.T).T  # w·z = (mix⁻ᵀ w)·(x − mean)
    size = np.linalg.norm(normals, axis=1)
    sought = Composite(normals / size[:, None], (1.6 + normals @ mean) / size, Or(), "step")
    found = Composite(model.halfspaces_.normals, model.halfspaces_.thresholds, Or(), "step")
    comparison = compare(found, sought)
    assert comparison.unmatched == ((), ())
    assert comparison.max_angle < 0.02
    assert comparison.bias_error < 0.02
    assert model.score(X, y) > 0.999
    assert "right side of 3 halfspaces" in model.notes_[0]


def flipped_union(
    d: int, k: int, n: int, rates: tuple[float, float], seed: int
) -> tuple[Composite, np.ndarray, np.ndarray, np.ndarray]:
    """A union, inputs, labels of which some are flipped (outside, inside), and the clean ones."""
    truth = composite_teacher(d, k, union(), threshold=1.5, activation="step", random_state=seed)
    rng = np.random.default_rng([seed, 1])
    X = rng.standard_normal((n, d))
    clean = truth(X)[:, 0] > 0.5
    flip = rng.random(n) < np.where(clean, rates[1], rates[0])
    return truth, X, clean ^ flip, clean


@pytest.mark.parametrize("rates", [(0.05, 0.05), (0.01, 0.2)])
def test_flipped_labels_and_their_rates(rates: tuple[float, float]) -> None:
    truth, X, y, clean = flipped_union(5, 3, 10_000, rates, 3)
    model = HalfspaceUnion(n_halfspaces=3, random_state=0).fit(X, y)
    found = Composite(model.halfspaces_.normals, model.halfspaces_.thresholds, Or(), "step")
    assert compare(found, truth).max_angle < 0.05
    assert np.mean(model.predict(X) == clean) > 0.997
    # Binomial standard errors, for about 7,000 samples outside and 2,000 inside, four of them.
    assert model.flip_rates_[0] == pytest.approx(rates[0], abs=4 * np.sqrt(rates[0] / 7_000))
    assert model.flip_rates_[1] == pytest.approx(rates[1], abs=4 * np.sqrt(rates[1] / 2_000))
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))


def test_errors_of_the_halfspaces_cover() -> None:
    """Over several data sets, two of three true normals and thresholds lie within one standard error, nearly all in 3."""
    within = []
    for seed in range(5):
        truth, X, y, _ = flipped_union(4, 2, 5_000, (0.05, 0.05), seed)
        half = HalfspaceUnion(n_halfspaces=2, random_state=0).fit(3.0 * X + 1.0, y).halfspaces_
        order = np.argmax(truth.W @ half.normals.T, axis=1)
        assert len(set(order)) == 2
        off = half.normals[order] - truth.W
        shift = half.thresholds[order] - (3.0 * truth.threshold + truth.W.sum(axis=1))
        errors = np.column_stack([off, shift])
        within.append(np.abs(errors) / np.sqrt(np.diagonal(half.covariance[order], axis1=1, axis2=2)))
    share = np.array(within)
    assert 0.5 < np.mean(share < 1.0) < 0.95
    assert np.mean(share < 3.0) > 0.94


@pytest.mark.parametrize("k", [2, 4])
def test_the_number_of_halfspaces_is_found(k: int) -> None:
    _, X, y, _ = flipped_union(5, k, 5_000, (0.02, 0.02), 10 + k)
    model = HalfspaceUnion(random_state=0).fit(X, y)
    assert len(model.halfspaces_) == k
    assert min(model.criteria_, key=model.criteria_.get) == k
    assert {k - 1, k, k + 1} <= set(model.criteria_)


def test_any_class_can_be_the_union() -> None:
    _, X, y, _ = flipped_union(4, 2, 4_000, (0.02, 0.02), 5)
    names = np.where(y, "a", "b")  # the union sorts first
    model = HalfspaceUnion(2, random_state=0, union_label="a").fit(X, names)
    other = HalfspaceUnion(2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X) == "a", other.predict(X))
    np.testing.assert_allclose(model.predict_proba(X)[:, 0], other.predict_proba(X)[:, 1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.flip_rates_, other.flip_rates_[::-1], rtol=1e-6)
    inverse = HalfspaceIntersection(2, random_state=0, intersection_label="b").fit(X, names)
    np.testing.assert_array_equal(inverse.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="one of the classes"):
        HalfspaceUnion(2, union_label="c").fit(X, names)


def test_a_set_of_another_shape_is_not_vouched_for() -> None:
    X = np.random.default_rng(0).standard_normal((6_000, 3))
    model = HalfspaceUnion(n_halfspaces=2, random_state=0).fit(X, np.linalg.norm(X, axis=1) > 2.0)
    assert any("not to be relied on" in note for note in model.notes_), model.notes_


def test_halfspaces_say_so_when_labels_are_noise() -> None:
    rng = np.random.default_rng(0)
    model = HalfspaceUnion(n_halfspaces=2).fit(rng.standard_normal((2_000, 3)), rng.integers(0, 2, 2_000))
    assert any("not to be relied on" in note for note in model.notes_)


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
    fit = fit_all(near, X, truth(X))
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
    fitted = fit_upper(train, given, upper, rng=rng, n_upper=n_upper, deadline=Deadline.after(1.0))
    assert isinstance(fitted.upper, kind)
    np.testing.assert_array_equal(fitted.W, given.W)  # the layer stays as it is
    whole = polished(fitted, train, holdout, rng)
    assert explained(whole, holdout) >= explained(fitted, holdout) > 0.99
    if upper != "deep":  # its own descents may end in another minimum that explains nearly all
        assert explained(whole, holdout) > 1 - 1e-9
        assert compare(whole, truth).layers[0].max_angle < 1e-5


def test_fit_upper_refuses() -> None:
    X = np.random.default_rng(0).standard_normal((500, 3))
    source, layer = ArraySource(X, X[:, 0]), Composite(np.eye(3), np.ones(3), Or())
    for upper, n_upper, words in (("tree", None, "one of"), ("deep", None, "widths"), ("network", (2,), "one number")):
        with pytest.raises(ValueError, match=words):
            fit_upper(source, layer, upper, rng=np.random.default_rng(0), n_upper=n_upper)


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
