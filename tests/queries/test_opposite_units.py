"""Two units on one hyperplane with opposite directions: what their answers determine, and that no more is claimed."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import get
from neurecover.certificate.signs.ambiguity import sign_ambiguities
from neurecover.queries.shallow.opposite_units import resolve_opposite_units
from neurecover.queries.shallow.options import ShallowOptions
from neurecover.queries.shallow.planes import AffinePartError, Planes


def network(d: int, k: int, p: int, pairs: int, seed: int, activation: str = "relu") -> nr.Network:
    """k units, the first few of which have a twin with an A of its own."""
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((k, d)), 0.5 * rng.standard_normal(k)
    A, c = rng.standard_normal((p, k + pairs)), rng.standard_normal(p)
    return nr.Network(np.vstack([W, -W[:pairs]]), np.append(b, -b[:pairs]), A, c, activation)


def planes_of(truth: nr.Network, k: int, rng: np.random.Generator) -> Planes:
    """The planes of the first k units as a box shows them, turned at random: each a kink, and one affine part."""
    act = truth.activation
    kappa = float(act(np.array(1.0)) + act(np.array(-1.0)))
    sign = rng.choice([-1.0, 1.0], k)
    size = np.linalg.norm(truth.W[:k], axis=1)
    W, b = truth.W[:k] * (sign / size)[:, None], truth.b[:k] * sign / size
    J = kappa * truth.A[:, :k] * size
    J[:, : truth.n_hidden - k] += kappa * truth.A[:, k:] * size[: truth.n_hidden - k]
    planes = Planes(W, b, J, np.zeros((truth.n_outputs, truth.n_inputs)), np.zeros(truth.n_outputs), np.zeros(k))
    X = rng.standard_normal((20, truth.n_inputs))
    rest = truth(X) - planes(X)
    solved = np.linalg.lstsq(np.column_stack([X, np.ones(20)]), rest, rcond=None)[0]
    return Planes(W, b, J, solved[:-1].T, solved[-1], np.zeros(k))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.3)"])
@pytest.mark.parametrize(
    ("d", "k", "p", "pairs"), [(6, 4, 1, 1), (6, 4, 2, 3), (4, 7, 1, 1), (4, 7, 2, 2), (6, 1, 1, 1)]
)
def test_planes_and_their_affine_part_give_the_pairs(d: int, k: int, p: int, pairs: int, activation: str) -> None:
    for seed in range(5):
        truth = network(d, k, p, pairs, seed, activation)
        found = resolve_opposite_units(
            planes_of(truth, k, np.random.default_rng(seed)), get(activation), 1e-9, ShallowOptions()
        )
        assert found is not None
        assert found.unique
        assert found.network.n_hidden == k + pairs
        errors = nr.compare(found.network, truth)
        assert max(errors.weight_error, errors.bias_error, errors.output_weight_error) < 1e-9
        X = np.random.default_rng(seed).standard_normal((50, d))
        np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)


def test_a_straight_part_is_not_explained_by_pairs() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        for k in (4, 6, 9):
            planes = planes_of(network(6, k, 1, 0, seed), k, rng)
            other = Planes(planes.W, planes.b, planes.J, rng.standard_normal((1, 6)), planes.c, planes.error)
            assert resolve_opposite_units(other, get("relu"), 1e-9, ShallowOptions()) is None


@pytest.mark.parametrize(("activation", "name"), [("leaky_relu(0.1)", r"leaky_relu\(0.1\)"), ("abs", "abs")])
def test_pairs_in_one_ratio_on_every_plane_are_units_of_another_activation(activation: str, name: str) -> None:
    for seed in range(5):
        planes = planes_of(network(8, 5, 2, 0, seed, activation), 5, np.random.default_rng(seed))
        with pytest.raises(AffinePartError, match=f"activation='{name}'"):
            resolve_opposite_units(planes, get("relu"), 1e-9, ShallowOptions())


@pytest.mark.parametrize(
    ("d", "k", "p", "pairs"), [(6, 5, 1, 1), (6, 5, 2, 1), (8, 5, 1, 3), (5, 8, 1, 1), (2, 3, 1, 1)]
)
def test_extract_finds_pairs(d: int, k: int, p: int, pairs: int) -> None:
    for seed in range(4):
        truth = network(d, k, p, pairs, seed)
        found = nr.extract(nr.oracle(truth, d), random_state=seed)
        errors = nr.compare(found.network, truth)
        assert found.certificate.verdict == "exact", found.summary()
        assert found.network.n_hidden == k + pairs
        assert max(errors.weight_error, errors.bias_error, errors.output_weight_error) < 1e-8
        assert errors.unmatched == ((), ())


@pytest.mark.parametrize("p", [1, 2])
def test_the_size_of_a_linear_function(p: int) -> None:
    """|z|, whose two units have the same A: reversing both is no other network."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        w, A = rng.standard_normal((1, 5)), rng.standard_normal((p, 1))
        truth = nr.Network(np.vstack([w, -w]), [0.3, -0.3], np.hstack([A, A]))
        assert sign_ambiguities(truth).unique
        found = nr.extract(nr.oracle(truth, 5), random_state=seed)
        assert found.certificate.verdict == "exact", found.summary()
        assert nr.compare(found.network, truth).weight_error < 1e-9


def test_pairs_that_do_not_bend_are_never_claimed() -> None:
    """a relu(z) − a relu(−z) = a z: the box has a straight part, and where it comes from is not to be seen."""
    for seed in range(3):
        plain = network(6, 5, 1, 0, seed)
        v = np.random.default_rng(100 + seed).standard_normal((1, 6))
        A = np.hstack([plain.A, [[1.0, -1.0]]])
        truth = nr.Network(np.vstack([plain.W, v, -v]), np.append(plain.b, [0.2, -0.2]), A, plain.c)
        found = nr.extract(nr.oracle(truth, 6), random_state=seed, depth=1)
        assert found.certificate.verdict == "approximate"
        assert any("affine part" in reason for reason in found.certificate.reasons)
        assert found.network.C is not None
    one = nr.Network([[1.0], [-1.0], [2.0]], [0.3, -0.3, -1.0], [[1.0, 2.0, 0.5]])
    assert nr.extract(nr.oracle(one, 1), random_state=0).certificate.verdict in ("approximate", "failed")
