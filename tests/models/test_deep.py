"""Networks of several layers: their values, normal form, files, comparison and derivatives."""

import copy
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import Whitening, unwhiten
from neurecover.models import (
    are_biases,
    free_directions,
    jacobian,
    network_of,
    parameters,
    term_sizes,
    with_parameters,
    write_npz,
)
from neurecover.simulate.composites import composite_teacher, products, tower

X = np.random.default_rng(1).standard_normal((40, 5))


def network(  # type: ignore[no-untyped-def]
    seed: int = 0,
    widths: tuple[int, ...] = (6, 4),
    n_outputs: int = 2,
    activation: str = "relu",
    affine: bool = False,
):
    rng = np.random.default_rng(seed)
    sizes = (5, *widths, n_outputs)
    layers = [(rng.standard_normal((m, n)), rng.standard_normal(m)) for n, m in pairwise(sizes)]
    return nr.DeepNetwork(layers, activation, rng.standard_normal((n_outputs, 5)) if affine else None)


def disguised(net: nr.DeepNetwork, seed: int = 0) -> nr.DeepNetwork:
    """The same function with the units of every layer reordered and rescaled."""
    rng = np.random.default_rng(seed)
    layers, order, scale = [], np.arange(net.n_inputs), np.ones(net.n_inputs)
    for W, b in net.layers[:-1]:
        own, size = rng.permutation(len(W)), rng.uniform(0.3, 3.0, len(W))
        layers.append((size[:, None] * (W[:, order] / scale)[own], size * b[own]))
        order, scale = own, size
    A, c = net.layers[-1]
    return nr.DeepNetwork([*layers, (A[:, order] / scale, c)], net.activation, net.C)


def test_the_values_are_those_of_the_layers_one_after_the_other() -> None:
    net = network()
    (W, b), (V, a), (A, c) = net.layers
    expected = np.maximum(np.maximum(X @ W.T + b, 0.0) @ V.T + a, 0.0) @ A.T + c
    np.testing.assert_allclose(net(X), expected, rtol=1e-14)
    assert net.n_hidden == (6, 4)
    assert net.n_parameters == 36 + 28 + 10
    shallow = nr.Network(W, b, V, a)
    np.testing.assert_array_equal(nr.DeepNetwork([(W, b), (V, a)])(X), shallow(X))


def test_an_affine_term_of_the_inputs_is_added_to_the_outputs() -> None:
    net = network(affine=True)
    np.testing.assert_allclose(net(X), network()(X) + X @ net.C.T, rtol=1e-13)
    assert net.n_parameters == 36 + 28 + 10 + 10
    kept = net.take([[1, 0, 3], [2, 0]])
    np.testing.assert_array_equal(kept.C, net.C)
    with pytest.raises(ValueError, match=r"C needs .* shape \(2, 5\). Got \(5, 2\)"):
        nr.DeepNetwork(net.layers, C=net.C.T)
    with pytest.raises(ValueError, match="C needs a hidden layer"):
        nr.DeepNetwork([(np.ones((2, 5)), None)], C=net.C)


def test_a_network_and_a_deep_network_are_seen_alike() -> None:
    deep = network(6, (4,), activation="silu", affine=True)
    flat = network_of(deep.layers, deep.activation, deep.C)
    assert type(flat) is nr.Network
    assert type(network_of(network().layers)) is nr.DeepNetwork
    assert (flat.depth, flat.n_inputs, flat.n_outputs) == (deep.depth, deep.n_inputs, deep.n_outputs) == (1, 5, 2)
    for first, second in zip(flat.layers, deep.layers, strict=True):
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(flat(X), deep(X))
    np.testing.assert_array_equal(flat.preactivations(X)[0], deep.preactivations(X)[0])
    np.testing.assert_array_equal(parameters(flat.normal_form()), parameters(deep.normal_form()))
    np.testing.assert_array_equal(jacobian(flat, X), jacobian(deep, X))


def test_the_parameters_are_in_order_and_an_affine_term_stands_before_the_offset() -> None:
    (W, b), (V, a), (A, c) = network(affine=True).layers
    C = network(affine=True).C
    expected = [W.ravel(), b, V.ravel(), a, A.ravel(), C.ravel(), c]
    np.testing.assert_array_equal(parameters(network(affine=True)), np.concatenate(expected))
    np.testing.assert_array_equal(parameters(network()), np.concatenate([*expected[:-2], c]))
    biases = [np.full(part.size, part is b or part is a or part is c) for part in expected]
    np.testing.assert_array_equal(are_biases(network(affine=True)), np.concatenate(biases))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.1)", "silu"])
def test_only_beside_a_single_hidden_layer_does_an_affine_term_free_signs(activation: str) -> None:
    """Turning units of two layers is another function, whatever C is: the line m z is no affine function of x above."""
    net = network(3, activation=activation, affine=True)
    normal = net.normal_form()
    for (W, _), (V, _) in zip(net.layers[:-1], normal.layers[:-1]):
        np.testing.assert_array_equal(np.sign(W), np.sign(V))
    np.testing.assert_array_equal(normal.C, net.C)
    (W, b), (V, a), last = net.layers
    inputs = np.random.default_rng(5).standard_normal((500, 5))
    affine = np.column_stack([inputs, np.ones(500)])
    for turned in ([(-W, -b), (V, a), last], [(W, b), (-V, -a), last]):
        change = nr.DeepNetwork(turned, activation, net.C)(inputs) - net(inputs)
        left = change - affine @ np.linalg.lstsq(affine, change, rcond=None)[0]
        assert np.linalg.norm(left) > 0.1 * np.linalg.norm(change)
    one = network(3, (6,), activation=activation, affine=True)
    assert np.all(one.normal_form().layers[0][0].max(axis=1) >= -one.normal_form().layers[0][0].min(axis=1))
    np.testing.assert_allclose(one.normal_form()(X), one(X), rtol=1e-10)


def test_the_biases_of_exponential_units_move_up_in_every_layer() -> None:
    small = [(0.1 * W, b) for W, b in network(3).layers]
    net = nr.DeepNetwork(small, "exp")
    normal = net.normal_form()
    np.testing.assert_allclose(normal(X), net(X), rtol=1e-12)
    assert not any(b.any() for _, b in normal.layers[:-1])
    free = free_directions(net)
    assert free.shape[1] == 10
    J = jacobian(net, X)
    assert np.abs(J @ free).max() < 1e-12 * np.abs(J).max()


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.1)", "power(2)", "sigmoid"])
def test_the_normal_form_is_the_same_function_with_unit_rows(activation: str, affine: bool) -> None:
    net = network(3, activation=activation, affine=affine)
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
        nr.compare(network(), MODELS["polynomial"])
    for other in (network(widths=(6,)), nr.Network(np.eye(5), None, np.ones((2, 5)))):
        with pytest.raises(ValueError, match="same depth"):
            nr.compare(network(), other)
    one = network(widths=(6,))
    assert nr.compare(nr.Network(*one.layers[0], *one.layers[1]), one).weight_error == 0.0


@pytest.mark.parametrize("affine", [False, True])
def test_files_copies_and_pickles(affine: bool, tmp_path: Path) -> None:
    net = network(1, (3, 4, 2), 1, "leaky_relu(0.2)", affine)
    assert net.to_arrays()["format_version"] == 1 + affine
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
    "deep affine": network(3, affine=True),
    "affine": nr.simulate.teacher(5, 4, 2, activation="silu", affine=True, random_state=0),
    "affine above": nr.Composite(
        0.7 * np.eye(3, 5), 0.1, nr.simulate.teacher(3, 4, 2, activation="tanh", affine=True, random_state=0)
    ),
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
    if name in ("shallow", "sigmoid", "affine"):
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


def test_a_composite_below_an_affine_term_is_no_deep_network_and_comes_back_from_its_file(tmp_path: Path) -> None:
    """C takes the hidden values in there, and in a deep network x."""
    model = MODELS["affine above"]
    above = nr.simulate.teacher(3, 4, 2, affine=True, random_state=0)
    assert nr.Composite(model.W, 0.1, above).to_deep() is None
    assert nr.Composite(model.W, 0.1, above.with_layers(above.layers, None)).to_deep() is not None
    model.save(tmp_path / "composite.npz")
    np.testing.assert_array_equal(nr.load(tmp_path / "composite.npz")(X), model(X))
    assert model.to_arrays()["format_version"] == 2


@pytest.mark.parametrize("name", ["polynomial", "tower", "affine above"])
def test_the_normal_form_and_parts_of_a_composite(name: str) -> None:
    model = MODELS[name]
    longer = nr.Composite(3.0 * model.W, 3.0 * model.threshold, model.upper, model.activation)
    normal = longer.normal_form()
    np.testing.assert_allclose(normal(X), longer(X), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normal.W, axis=1), 1.0)
    silenced = np.where([True, False, True], model.threshold, 1e9)
    part = model.take([0, 2])
    np.testing.assert_allclose(part(X), nr.Composite(model.W, silenced, model.upper)(X), rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_network_on_whitened_inputs_is_one_on_the_inputs(name: str) -> None:
    model, rng = MODELS[name], np.random.default_rng(3)
    inputs = rng.standard_normal((50, 7)) @ rng.standard_normal((7, 7)) + 3.0
    whitening = Whitening(inputs.mean(axis=0), rng.standard_normal((7, 5)))
    found = unwhiten(model, whitening)
    assert type(found) is type(model)
    assert found.n_inputs == 7
    np.testing.assert_allclose(found(inputs), model(whitening.inputs(inputs)), rtol=1e-9, atol=1e-9)
