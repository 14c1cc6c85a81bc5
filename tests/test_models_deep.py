"""Networks of several layers: their values, normal form, files, comparison and derivatives."""

import copy
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.models import free_directions, jacobian, parameters, term_sizes, with_parameters, write_npz
from neurecover.simulate.composites import composite_teacher, products, tower

X = np.random.default_rng(1).standard_normal((40, 5))


def network(seed: int = 0, widths: tuple[int, ...] = (6, 4), n_outputs: int = 2, activation: str = "relu"):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    sizes = (5, *widths, n_outputs)
    layers = [(rng.standard_normal((m, n)), rng.standard_normal(m)) for n, m in pairwise(sizes)]
    return nr.DeepNetwork(layers, activation)


def disguised(net: nr.DeepNetwork, seed: int = 0) -> nr.DeepNetwork:
    """The same function with the units of every layer reordered and rescaled."""
    rng = np.random.default_rng(seed)
    layers, order, scale = [], np.arange(net.n_inputs), np.ones(net.n_inputs)
    for W, b in net.layers[:-1]:
        own, size = rng.permutation(len(W)), rng.uniform(0.3, 3.0, len(W))
        layers.append((size[:, None] * (W[:, order] / scale)[own], size * b[own]))
        order, scale = own, size
    A, c = net.layers[-1]
    return nr.DeepNetwork([*layers, (A[:, order] / scale, c)], net.activation)


def test_the_values_are_those_of_the_layers_one_after_the_other() -> None:
    net = network()
    (W, b), (V, a), (A, c) = net.layers
    expected = np.maximum(np.maximum(X @ W.T + b, 0.0) @ V.T + a, 0.0) @ A.T + c
    np.testing.assert_allclose(net(X), expected, rtol=1e-14)
    assert net.n_hidden == (6, 4)
    assert net.n_parameters == 36 + 28 + 10
    shallow = nr.Network(W, b, V, a)
    np.testing.assert_array_equal(nr.DeepNetwork([(W, b), (V, a)])(X), shallow(X))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.1)", "power(2)", "sigmoid"])
def test_the_normal_form_is_the_same_function_with_unit_rows(activation: str) -> None:
    net = network(3, activation=activation)
    normal = net.normal_form()
    np.testing.assert_allclose(normal(X), net(X), rtol=1e-10)
    if activation != "sigmoid":
        for W, _ in normal.layers[:-1]:
            np.testing.assert_allclose(np.linalg.norm(W, axis=1), 1.0)


@pytest.mark.parametrize("widths", [(6, 4), (3,), (4, 5, 3), ()])
def test_compare_sees_through_order_and_scale(widths: tuple[int, ...]) -> None:
    net = network(2, widths)
    errors = nr.compare(disguised(net, 5), net)
    assert max(errors.weight_error, errors.bias_error, errors.output_weight_error, errors.offset_error) < 1e-13
    assert len(errors.layers) == len(widths)
    assert all(layer.unmatched == ((), ()) for layer in errors.layers)


def test_compare_finds_the_layer_that_is_wrong() -> None:
    net = network(4).normal_form()
    (W, b), (V, a), last = net.layers
    V = V.copy()
    V[1] = np.roll(V[1], 1)
    errors = nr.compare(disguised(nr.DeepNetwork([(W, b), (V, a), last]), 1), net)
    assert errors.layers[0].weight_error < 1e-13
    assert errors.layers[1].weight_error == pytest.approx(np.linalg.norm(V[1] - net.layers[1][0][1]))
    assert errors.weight_error == errors.layers[1].weight_error


def test_compare_names_units_without_a_partner() -> None:
    net = network(4)
    fewer = disguised(net, 1).take([np.arange(6), np.arange(3)])
    errors = nr.compare(fewer, net)
    assert errors.layers[0].unmatched == ((), ())
    assert [len(side) for side in errors.layers[1].unmatched] == [0, 1]
    assert errors.output_weight_error > 0.1


def test_compare_refuses_two_kinds_and_two_depths() -> None:
    with pytest.raises(ValueError, match="same kind"):
        nr.compare(network(), nr.Network(np.eye(5), None, np.ones((2, 5))))
    with pytest.raises(ValueError, match="same depth"):
        nr.compare(network(), network(widths=(6,)))


def test_files_copies_and_pickles(tmp_path: Path) -> None:
    net = network(1, (3, 4, 2), 1, "leaky_relu(0.2)")
    net.save(tmp_path / "deep.npz")
    loaded = nr.load(tmp_path / "deep.npz")
    assert isinstance(loaded, nr.DeepNetwork)
    for again in (loaded, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(again(X), net(X))
        assert not again.layers[1][0].flags.writeable
    write_npz(tmp_path / "part.npz", {k: v for k, v in net.to_arrays().items() if k != "b2"})
    with pytest.raises(ValueError, match="lacks b2"):
        nr.load(tmp_path / "part.npz")


def test_bad_layers_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="Layer 2 needs one column per unit of the layer below, that is 3"):
        nr.DeepNetwork([(np.ones((3, 2)), None), (np.ones((1, 4)), None)])
    with pytest.raises(ValueError, match="Got no layer"):
        nr.DeepNetwork([])
    with pytest.raises(ValueError, match="X needs shape"):
        network()(np.ones((2, 3)))


MODELS = {
    "deep": network(0),
    "deeper leaky": network(1, (4, 3, 2), 1, "leaky_relu(0.1)"),
    "sigmoid": network(2, activation="sigmoid"),
    "shallow": nr.simulate.teacher(5, 4, 2, random_state=0),
    "polynomial": composite_teacher(5, 3, products(3), threshold=0.3, random_state=0),
    "tower": composite_teacher(5, 3, tower(3, (4, 2), random_state=1), threshold=0.2, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_against_differences(name: str) -> None:
    model = MODELS[name]
    theta, step = parameters(model), 1e-6
    assert len(theta) == model.n_parameters
    numeric = [
        (with_parameters(model, theta + step * e)(X) - with_parameters(model, theta - step * e)(X)) / (2 * step)
        for e in np.eye(len(theta))
    ]
    np.testing.assert_allclose(jacobian(model, X), np.stack(numeric, axis=2), atol=2e-7)


@pytest.mark.parametrize("name", MODELS)
def test_free_directions_change_nothing_and_are_all_there_are(name: str) -> None:
    model = MODELS[name]
    free = free_directions(model)
    inputs = np.random.default_rng(0).standard_normal((3_000, 5))
    J = jacobian(model, inputs).reshape(-1, len(free))
    assert np.abs(J @ free).max(initial=0.0) < 1e-10 * np.abs(J).max()
    # Units that no sample switches on, or that nothing above lets through, leave more free than the scales.
    values = np.linalg.svd(J / np.maximum(np.linalg.norm(J, axis=0), 1e-300), compute_uv=False)
    silent = np.count_nonzero(np.linalg.norm(J, axis=0) == 0.0)
    assert np.count_nonzero(values < 1e-9 * values[0]) >= free.shape[1]
    if name in ("shallow", "sigmoid"):
        assert np.count_nonzero(values < 1e-9 * values[0]) == free.shape[1] + silent


@pytest.mark.parametrize("name", MODELS)
def test_rounding_stays_below_the_size_of_the_terms(name: str) -> None:
    model = MODELS[name]
    shifted = X + 2.0**-53 * np.abs(X)  # one rounding error in the inputs
    assert np.all(np.abs(model(shifted) - model(X)) <= 1e-15 * 10 * term_sizes(model, X))
    terms = term_sizes(model, X)
    assert np.all(terms >= np.abs(model(X)) * (1 - 1e-12))


@pytest.mark.parametrize("name", MODELS)
def test_verify_takes_every_kind(name: str) -> None:
    model = MODELS[name]
    Y = model(X)
    assert nr.verify(model, X, Y).at_rounding
    off = nr.verify(model, X, Y + 0.1)
    assert not off.at_rounding
    np.testing.assert_allclose(off.mse, 0.01, rtol=1e-6)
    with pytest.raises(ValueError, match="n_inputs=5"):
        nr.verify(model, X[:, :4], Y)


def test_a_composite_of_networks_is_a_deep_network() -> None:
    model = MODELS["tower"]
    deep = model.to_deep()
    np.testing.assert_allclose(deep(X), model(X), rtol=1e-14)
    assert deep.n_hidden == (3, 4, 2)
    assert MODELS["polynomial"].to_deep() is None
    errors = nr.compare(model, model)
    assert len(errors.layers) == 3


@pytest.mark.parametrize("name", ["polynomial", "tower"])
def test_the_normal_form_and_parts_of_a_composite(name: str) -> None:
    model = MODELS[name]
    longer = nr.Composite(3.0 * model.W, 3.0 * model.threshold, model.upper, model.activation)
    normal = longer.normal_form()
    np.testing.assert_allclose(normal(X), longer(X), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normal.W, axis=1), 1.0)
    silenced = np.where([True, False, True], model.threshold, 1e9)
    part = model.take([0, 2])
    np.testing.assert_allclose(part(X), nr.Composite(model.W, silenced, model.upper)(X), rtol=1e-12)
