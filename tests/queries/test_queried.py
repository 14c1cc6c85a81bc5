"""What queries were for, and units whose slope on the left is found."""

from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from benchmarks.extract import he_network


@pytest.mark.parametrize("activation", ["leaky_relu(0.01)", "leaky_relu(-0.3)", "abs"])
def test_the_slope_on_the_left_is_found(activation: str) -> None:
    for seed, (d, k, p) in enumerate([(6, 5, 1), (8, 10, 1), (5, 6, 2)]):
        rng = np.random.default_rng(seed)
        W, b, A = rng.standard_normal((k, d)), rng.standard_normal(k), rng.standard_normal((p, k))
        truth = nr.Network(W, b, A, rng.standard_normal(p), activation)
        found = nr.extract(nr.oracle(truth, d), random_state=seed)
        assert str(found.network.activation) == activation
        assert found.certificate.verdict == "exact", found.summary()
        assert nr.compare(found.network, truth).weight_error < 1e-9


def test_a_learned_slope_is_found_to_its_digits() -> None:
    truth = nr.simulate.teacher(6, 5, random_state=3)
    sloped = nr.Network(truth.W, truth.b, truth.A, truth.c, "leaky_relu(0.2371846513)")
    found = nr.extract(nr.oracle(sloped, 6), random_state=0)
    right, left = found.network.activation(np.array([1.0, -1.0]))
    assert -left / right == pytest.approx(0.2371846513, abs=1e-9)
    assert found.certificate.verdict == "exact"


def test_two_layers_of_leaky_relu_are_found_from_designed_samples() -> None:
    rng = np.random.default_rng(840021)
    shapes = ((6, 6), (6, 4), (4, 1))
    layers = [(rng.standard_normal((m, d)) / np.sqrt(d), 0.3 * rng.standard_normal(m)) for d, m in shapes]
    truth = nr.DeepNetwork(layers, activation="leaky_relu(0.2)")
    found = nr.extract(nr.oracle(truth, 6), random_state=0)
    assert str(found.network.activation) == "leaky_relu(0.2)"
    assert found.n_queries is not None
    assert found.n_queries < 20_000
    if found.certificate.verdict == "exact":
        assert nr.compare(found.network, truth).weight_error < 1e-9


@pytest.mark.parametrize("dims", [(6, 5, 1), (8, 6, 5, 1)])
def test_every_query_has_a_purpose_and_is_kept(dims: tuple[int, ...], tmp_path: Path) -> None:
    truth = he_network(dims, 5)
    found = nr.extract(nr.oracle(truth, dims[0]), random_state=0, price=0.01)
    asked = found.queried
    assert asked is not None
    assert asked.total == found.n_queries
    assert asked.cost == pytest.approx(0.01 * asked.total)
    assert [len(errors) for errors in asked.errors] == list(dims[1:-1])
    assert {f"hidden layer {number}" for number in range(1, len(dims) - 1)} <= {name for name, _ in asked.purposes}
    # The kinks along the line are where a unit of the network changes its sign.
    line = asked.line
    assert line is not None
    width = 1e-5 * (1.0 + np.abs(line.kinks))
    sides = [line.x + (line.kinks + way * width)[:, None] * line.v for way in (-1.0, 1.0)]
    before, behind = (np.hstack(truth.preactivations(X)) > 0.0 for X in sides)
    assert np.all(np.any(before != behind, axis=1))
    found.save(tmp_path / "found.npz")
    again = nr.Recovery.load(tmp_path / "found.npz").queried
    assert again is not None
    assert again.rows() == asked.rows()
    np.testing.assert_array_equal(again.line.kinks, line.kinks)
    assert "cost" in found.summary()
    assert "hidden layer 1" in found.summary(verbose=True)


def test_a_price_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="price"):
        nr.extract(nr.oracle(nr.simulate.teacher(3, 2, random_state=0), 3), price=-1.0)


def test_a_clipped_network_is_a_network_with_a_layer_more() -> None:
    inner = nr.simulate.teacher(10, 8, random_state=5)
    found = nr.extract(nr.oracle(lambda X: np.clip(inner(X), -100.0, 100.0), 10), random_state=0)
    if found.certificate.verdict == "exact":
        X = 30.0 * np.random.default_rng(0).standard_normal((500, 10))
        np.testing.assert_allclose(found.predict(X), np.clip(inner(X), -100.0, 100.0), atol=1e-6)
    else:
        assert found.certificate.verdict in ("approximate", "failed")
