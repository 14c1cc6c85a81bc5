"""Step 2: the angle in slabs, its searches, the likelihood of unions; halfspace classifiers; whole networks."""

import numpy as np
import pytest
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


def test_union_score_against_differences_and_merging() -> None:
    rng = np.random.default_rng(0)
    V, tau = rng.standard_normal((2, 3)), np.array([0.5, 1.0])
    X, y = rng.standard_normal((300, 3)), (rng.random((300, 1)) < 0.4).astype(float)
    score = UnionScore(V, tau)
    score.update(X, y)

    def value(dV: np.ndarray, dtau: np.ndarray) -> float:
        other = UnionScore(V + dV, tau + dtau, curvature=False)
        other.update(X, y)
        return float(other.sums["log_likelihood"])

    e = 1e-6
    for i in range(2):
        for j in range(3):
            s = np.zeros((2, 3))
            s[i, j] = e
            numeric = (value(s, np.zeros(2)) - value(-s, np.zeros(2))) / (2 * e)
            assert score.sums["score"][i, j] == pytest.approx(numeric, rel=1e-4, abs=1e-4)
        s = e * np.eye(2)[i]
        numeric = (value(np.zeros((2, 3)), s) - value(np.zeros((2, 3)), -s)) / (2 * e)
        assert score.sums["score"][i, 3] == pytest.approx(numeric, rel=1e-4, abs=1e-4)
    first, second = UnionScore(V, tau), UnionScore(V, tau)
    first.update(X[:100], y[:100])
    second.update(X[100:], y[100:])
    first.merge(second)
    np.testing.assert_allclose(first.information, score.information)


def test_information_is_the_variance_of_the_score() -> None:
    """Labels drawn from the model itself: E[score scoreᵀ] is the Fisher information."""
    rng = np.random.default_rng(0)
    V, tau = np.array([[1.5, 0.0], [0.0, 1.0]]), np.array([0.5, 0.3])
    X = rng.standard_normal((1, 2)).repeat(40_000, axis=0)
    from scipy.special import ndtr

    outside = np.prod(ndtr(tau - X[:1] @ V.T))
    scores = []
    for label in (0.0, 1.0):
        one = UnionScore(V, tau)
        one.update(X[:1], np.array([[label]]))
        scores.append(one.sums["score"].ravel())
    mean = outside * scores[0] + (1 - outside) * scores[1]
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    expected = outside * np.outer(scores[0], scores[0]) + (1 - outside) * np.outer(scores[1], scores[1])
    np.testing.assert_allclose(one.information, expected, atol=1e-12)


@pytest.mark.parametrize(("cls", "inside"), [(HalfspaceUnion, 1), (HalfspaceIntersection, 0)])
def test_halfspaces_of_shifted_correlated_inputs(cls, inside: int) -> None:  # type: ignore[no-untyped-def]
    truth = composite_teacher(5, 3, union(), threshold=1.6, activation="step", random_state=2)
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((40_000, 5))
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
