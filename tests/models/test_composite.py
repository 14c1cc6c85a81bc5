"""Deep teachers: their values against the formulas they stand for, saving, and comparing the first layer."""

import numpy as np
import pytest

from neurecover.matching import compare
from neurecover.models import Composite, Or, Polynomial, load, write_npz
from neurecover.simulate.composites import composite_teacher, powers, products, tower, union

RNG = np.random.default_rng(0)


def test_products_is_the_polynomial_written_out() -> None:
    H = RNG.uniform(0, 2, (50, 4))
    P = products(4, 3, linear=[1.0, 2.0, 3.0, 4.0], product=0.5, constant=0.25)
    s1, s2, s3 = H.sum(1), (H**2).sum(1), (H**3).sum(1)
    e2, e3 = (s1**2 - s2) / 2, (s1**3 - 3 * s1 * s2 + 2 * s3) / 6  # Newton's identities
    np.testing.assert_allclose(P(H)[:, 0], 0.25 + H @ [1.0, 2.0, 3.0, 4.0] + 0.5 * (e2 + e3))
    np.testing.assert_array_equal(P.linear, [[1.0, 2.0, 3.0, 4.0]])
    assert P.degree == 3


def test_powers_is_the_polynomial_written_out() -> None:
    H = RNG.uniform(0, 2, (20, 3))
    s1, s2 = H.sum(1), (H**2).sum(1)
    expected = s1 + 0.5 * (s2 + (H**3).sum(1)) + 0.5 * (s1**2 - s2) / 2
    np.testing.assert_allclose(powers(3, 3)(H)[:, 0], expected)


def test_polynomial_derivatives_against_differences() -> None:
    P = powers(3, 4)
    H = RNG.uniform(0.1, 2, (10, 3))
    step = 1e-6
    numeric = np.stack([(P(H + step * e) - P(H - step * e)) / (2 * step) for e in np.eye(3)], axis=2)
    np.testing.assert_allclose(P.derivatives(H), numeric, rtol=1e-6)


def test_or_of_step_units_is_its_polynomial() -> None:
    truth = composite_teacher(5, 3, union(), threshold=[0.5, 1.0, 1.5], activation="step", random_state=1)
    X = RNG.standard_normal((200, 5))
    H = truth.hidden(X)
    np.testing.assert_allclose(truth(X)[:, 0], 1 - np.prod(1 - H, axis=1))


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_positive_towers_are_monotone(activation: str) -> None:
    upper = tower(4, (5, 3), activation=activation, random_state=0)
    H = RNG.uniform(0, 1, (100, 4))
    assert np.all(upper(H + 0.1) > upper(H))


@pytest.mark.parametrize(
    "upper", [products(3), Or(), tower(3, (4,), random_state=0), tower(3, (4, 2), activation="sigmoid", random_state=0)]
)
def test_save_and_load(tmp_path, upper) -> None:  # type: ignore[no-untyped-def]
    network = composite_teacher(4, 3, upper, threshold=1.2, random_state=0)
    network.save(tmp_path / "deep.npz")
    again = load(tmp_path / "deep.npz")
    X = RNG.standard_normal((50, 4))
    np.testing.assert_array_equal(again(X), network(X))
    assert type(again.upper) is type(network.upper)


def test_a_callable_upper_works_but_is_not_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    network = Composite(np.eye(2), 0.5, lambda H: np.sin(H).sum(axis=1, keepdims=True))
    assert network(np.ones((3, 2))).shape == (3, 1)
    with pytest.raises(ValueError, match="without pickle"):
        network.save(tmp_path / "deep.npz")


def test_a_damaged_file_is_refused_in_a_sentence(tmp_path) -> None:  # type: ignore[no-untyped-def]
    arrays = composite_teacher(4, 3, products(3), random_state=0).to_arrays()
    write_npz(tmp_path / "part.npz", {name: array for name, array in arrays.items() if name != "coefficients"})
    with pytest.raises(ValueError, match="lacks coefficients"):
        load(tmp_path / "part.npz")
    write_npz(tmp_path / "odd.npz", arrays | {"upper": np.array("Forest")})
    with pytest.raises(ValueError, match="Got 'Forest' instead"):
        load(tmp_path / "odd.npz")
    write_npz(tmp_path / "kind.npz", arrays | {"kind": np.array("tree")})
    with pytest.raises(ValueError, match="does not know, 'tree'"):
        load(tmp_path / "kind.npz")


def test_compare_pairs_first_layers_whatever_the_upper_part() -> None:
    truth = composite_teacher(6, 4, products(4), threshold=[1.0, 1.2, 1.4, 1.6], random_state=3)
    order = [2, 0, 3, 1]
    other = Composite(truth.W[order], truth.threshold[order], Or())
    comparison = compare(other, truth)
    assert comparison.max_angle < 1e-12
    assert comparison.bias_error == 0.0
    np.testing.assert_array_equal(comparison.permutation, np.argsort(order))


@pytest.mark.parametrize(("kind", "condition"), [("orthonormal", 1.0 + 1e-9), ("tilted", 20.0)])
def test_kinds_of_first_layer(kind: str, condition: float) -> None:
    W = composite_teacher(6, 6, products(6), kind=kind, random_state=0).W
    np.testing.assert_allclose(np.linalg.norm(W, axis=1), 1.0)
    assert np.linalg.cond(W) <= condition


def test_errors() -> None:
    with pytest.raises(ValueError, match="at most as many units"):
        composite_teacher(3, 4, products(4), kind="tilted")
    with pytest.raises(ValueError, match="kind must be one of"):
        composite_teacher(3, 2, products(2), kind="odd")
    with pytest.raises(ValueError, match="whole exponents"):
        Polynomial([[0.5]], [1.0])
    with pytest.raises(ValueError, match="callable"):
        Composite(np.eye(2), 1.0, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        Composite(np.eye(2), [1.0, 2.0, 3.0], Or())
