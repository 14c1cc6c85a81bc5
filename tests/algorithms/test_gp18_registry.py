"""Every algorithm of [GP18] through `estimate`: what it finds, in which coordinates, and what it refuses."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import get
from neurecover.algorithms import get_method
from neurecover.algorithms.gp18.layers.lowest_layer import LowestLayer
from neurecover.matching import compare
from neurecover.models import Composite, Polynomial
from neurecover.search import Task
from neurecover.simulate import matrices
from neurecover.simulate.composites import composite_teacher, products

NAMES = ("lowest_layer", "landscape", "steep_directions", "cliques", "exponential", "even", "rejection")


def shifted(truth: Composite, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Composite]:
    """Samples of a composite on Gaussian inputs of another mean and covariance, and the composite of those inputs."""
    rng = np.random.default_rng(seed)
    d = truth.n_inputs
    Z = rng.standard_normal((n, d))
    mix, mean = np.eye(d) + 0.3 * rng.standard_normal((d, d)), rng.standard_normal(d)
    W = np.linalg.solve(mix.T, truth.W.T).T  # w·z = (mix⁻ᵀ w)·(x − mean)
    sought = Composite(W, truth.threshold + W @ mean, truth.upper, truth.activation)
    return Z @ mix.T + mean, truth(Z), sought


@pytest.mark.parametrize(
    ("method", "form", "angle"),
    [
        ("lowest_layer", "best", 0.02),
        ("landscape", "best", 0.35),
        ("landscape", "paper", 0.5),
        ("steep_directions", "best", 0.15),
    ],
)
def test_units_in_the_coordinates_of_the_inputs(method: str, form: str, angle: float) -> None:
    truth = composite_teacher(4, 3, products(3), kind="orthonormal", random_state=1)
    X, Y, sought = shifted(truth, 40_000)
    found = nr.estimate(X, Y, 3, method=method, form=form, random_state=0)
    assert isinstance(found.network, Composite)
    assert isinstance(found.network.upper, Polynomial)
    assert found.method == method
    assert found.form == form
    comparison = compare(found.network, sought)
    assert comparison.unmatched == ((), ())
    assert comparison.max_angle < angle
    # The linear upper part explains what is linear, which is most of it.
    assert np.mean((found.network(X) - Y) ** 2) < 0.3 * Y.var()


def test_the_papers_own_form_with_fewer_samples() -> None:
    truth = composite_teacher(3, 2, products(2), kind="orthonormal", random_state=0)
    X, Y, sought = shifted(truth, 10_000)
    found = nr.estimate(X, Y, 2, method="lowest_layer", form="paper", random_state=0)
    assert compare(found.network, sought).max_angle < 0.2
    assert isinstance(found.details, LowestLayer)
    assert isinstance(found.details.step_two.by, tuple)


def test_the_record_of_the_lowest_layer() -> None:
    truth = composite_teacher(4, 3, products(3), random_state=1)
    X, Y, _ = shifted(truth, 20_000)
    found = nr.estimate(X, Y, method="lowest_layer", random_state=0)
    layer = found.details
    assert layer.step_one.W.shape == (3, 4)
    assert layer.activity.share == pytest.approx(np.mean(np.any(truth(X) != 0.0, axis=1)), abs=1.0)
    assert layer.tan_alpha.shape == (3,)
    assert layer.certain == (layer.agreement >= 0.998)
    assert found.notes == layer.notes


@pytest.mark.parametrize("seed", range(2))
def test_rejection_with_the_oracle_of_the_paper(seed: int) -> None:
    """Kept inputs only: whitened, their first and second coefficients would be gone."""
    truth = composite_teacher(
        5, 2, products(2), threshold=3.0, kind="orthonormal", activation="sigmoid", random_state=seed
    )
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((400_000, 5))
    f = truth(X)[:, 0]
    kept = rng.random(len(f)) < f / f.max()
    found = nr.estimate(X[kept], f[kept], 2, "rejection", "paper", activation="sigmoid", random_state=0)
    assert found.network is not None, found.notes
    assert nr.compare(found.network, truth, up_to_sign=True).max_angle < 0.25


def test_rejection_of_small_outputs() -> None:
    truth = composite_teacher(
        4, 3, products(3, 1), threshold=3.0, kind="orthonormal", activation="sigmoid", random_state=0
    )
    X, Y, sought = shifted(truth, 200_000)
    found = nr.estimate(X, Y, 3, method="rejection", activation="sigmoid", random_state=0)
    assert compare(found.network, sought).max_angle < 0.5
    assert 1_000 < found.details.n_kept < 100_000
    assert "outputs from 0 up" in nr.estimate(X, Y - 1.0, 3, method="rejection", activation="sigmoid").notes[0]


@pytest.mark.parametrize("method", ["cliques", "exponential"])
@pytest.mark.parametrize("seed", range(2))
def test_weights_of_zero_and_one_in_the_axes_of_the_inputs(method: str, seed: int) -> None:
    """Whitening turns the axes; the weights come back in them."""
    W = np.array([[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]], dtype=float)
    X = np.random.default_rng(seed).standard_normal((60_000, 7))
    Y = products(3, product=0.1)(np.exp(X @ W.T) if method == "exponential" else np.exp(0.6 * (X @ W.T - 4.0)))
    found = nr.estimate(X, Y, method=method, activation="exp", random_state=seed)
    assert isinstance(found.network, Composite)
    scale = found.network.W.max()
    assert set(map(tuple, np.round(found.network.W / scale, 9) + 0.0)) == set(map(tuple, W))
    assert scale == pytest.approx(1.0 if method == "exponential" else 0.6, rel=0.15)
    np.testing.assert_allclose(found.network.threshold, 0.0, atol=1e-12)
    moved = nr.estimate(X + 1.0, Y, method=method, activation="exp", random_state=seed)
    assert moved.network is None
    assert "mean 0" in moved.notes[0]


@pytest.mark.parametrize("n_hidden", [3, None])
def test_even_units_of_shifted_inputs(n_hidden: int | None) -> None:
    W = matrices.orthonormal(np.random.default_rng(2), 3, 4)
    truth = Composite(W, np.zeros(3), products(3), "abs")
    X, Y, sought = shifted(truth, 60_000)
    found = nr.estimate(X, Y, n_hidden, method="even", activation="abs", random_state=0)
    # unit rows in both
    assert compare(found.network, sought.normal_form()).max_angle < 0.15


@pytest.mark.parametrize("name", NAMES)
def test_refusals_are_sentences(name: str) -> None:
    method = get_method(name)
    assert method.finds == "composite"
    wrong = Task(get("identity"), 5, 1, 1_000, True, 3)
    right = "exp" if name in ("cliques", "exponential") else "abs" if name == "even" else "relu"
    two_outputs = Task(get(right), 5, 2, 1_000, True, 3)
    for task in (wrong, wrong if name == "lowest_layer" else two_outputs, Task(get(right), 5, 1, 1_000, True, 6)):
        reason = method.refuse(task)
        assert reason is not None
        assert reason.endswith(".")
        assert name in reason
    assert method.refuse(Task(get(right), 5, 1, 1_000, True, 3)) is None


@pytest.mark.parametrize("name", NAMES)
def test_data_without_units_gives_a_reason_and_no_network(name: str) -> None:
    X = np.random.default_rng(0).standard_normal((3_000, 4))
    activation = "exp" if name in ("cliques", "exponential") else "abs" if name == "even" else "relu"
    n_hidden = 2 if name == "steep_directions" else None
    found = nr.estimate(X, np.zeros(3_000), n_hidden, method=name, activation=activation, random_state=0)
    assert found.network is None
    assert found.notes[0].endswith(".")


def test_same_seed_same_estimate() -> None:
    truth = composite_teacher(4, 3, products(3), random_state=1)
    X, Y, _ = shifted(truth, 10_000)
    first, second = (nr.estimate(X, Y, 3, method="lowest_layer", random_state=5).network for _ in range(2))
    np.testing.assert_array_equal(first.W, second.W)


def test_recover_points_to_the_right_function() -> None:
    X = np.random.default_rng(0).standard_normal((100, 3))
    with pytest.raises(ValueError, match="recover_lowest_layer"):
        nr.recover(X, X[:, 0], method="lowest_layer")
