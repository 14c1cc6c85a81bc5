"""Comparison of networks: what it must not notice (the symmetries), and what it must measure exactly."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurecover.activations import get
from neurecover.matching import Comparison, compare
from neurecover.models import DeepNetwork, Network, replace_arrays
from neurecover.models.merging import simplify
from neurecover.simulate import teacher

SPECS = ["relu", "leaky_relu(0.2)", "leaky_relu(-1)", "power(2)", "power(0.5)", "step", "sigmoid", "exp", "abs"]
SPECS += ["square", "identity"]
# a·act(z) = (first·a)·act(−z) + second·a, written out by hand.
MIRROR = {
    "leaky_relu(-1)": (1, 0),
    "abs": (1, 0),
    "square": (1, 0),
    "identity": (-1, 0),
    "sigmoid": (-1, 1),
    "step": (-1, 1),
}
INPUTS = np.random.default_rng(17).standard_normal((50, 4))

every_activation = pytest.mark.parametrize("spec", SPECS)
seeds = st.integers(0, 2**32 - 1)
examples = settings(max_examples=8, deadline=None)


def random_network(rng: np.random.Generator, spec: str, k: int = 5) -> Network:
    W, b, A, c = (rng.standard_normal(shape) for shape in ((k, 4), k, (3, k), 3))
    return Network(W, b, A, c, activation=spec)


def rescaled(network: Network, s: np.ndarray) -> Network:
    """The same function: act(s z) = s^h act(z) for s > 0, and exp(z + log s) = s·exp(z)."""
    W, b, A = network.W, network.b, network.A
    if network.activation.name == "exp":
        return replace_arrays(network, b=b + np.log(s), A=A / s)
    h = network.activation.homogeneity
    return network if h is None else replace_arrays(network, W=W * s[:, None], b=b * s, A=A / s**h)


def mirrored(network: Network, signs: np.ndarray) -> Network:
    """The same function, for the activations in MIRROR."""
    factor, constant = MIRROR[str(network.activation)]
    A = np.where(signs < 0, factor * network.A, network.A)
    c = network.c + constant * network.A[:, signs < 0].sum(axis=1)
    return Network(network.W * signs[:, None], network.b * signs, A, c, network.activation)


def joined(first: Network, second: Network) -> Network:
    """The sum of the two functions."""
    return Network(
        np.vstack([first.W, second.W]),
        np.concatenate([first.b, second.b]),
        np.hstack([first.A, second.A]),
        first.c + second.c,
        first.activation,
    )


def errors(result: Comparison) -> np.ndarray:
    return np.array(
        [
            result.weight_error,
            result.bias_error,
            result.output_weight_error,
            result.offset_error,
            result.max_angle,
            result.output_mse,
        ]
    )


@every_activation
@examples
@given(seed=seeds)
def test_a_disguised_network_is_the_same_network(spec: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = random_network(rng, spec)
    signs = rng.choice([-1, 1], size=5) if spec in MIRROR else np.ones(5, dtype=int)
    disguised = mirrored(truth, signs) if spec in MIRROR else truth
    disguised = rescaled(disguised, np.exp(rng.uniform(-2, 2, size=5)))
    order = rng.permutation(5)
    disguised = disguised.take(order)
    np.testing.assert_allclose(disguised(INPUTS), truth(INPUTS), rtol=1e-9, atol=1e-9)

    result = compare(disguised, truth)
    # The points differ by the rounding of b/‖w‖, which grows with its size.
    assert np.all(errors(result) < 1e-10)
    np.testing.assert_array_equal(order[result.permutation], np.arange(5))
    np.testing.assert_array_equal(result.signs, signs)
    assert result.unmatched == ((), ())


@every_activation
@examples
@given(seed=seeds)
def test_spare_units_are_not_counted(spec: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = random_network(rng, spec)
    dead = replace_arrays(random_network(rng, spec, k=2), A=np.zeros((3, 2)), c=np.zeros(3))
    still = replace_arrays(random_network(rng, spec, k=2), W=np.zeros((2, 4)), c=np.zeros(3))
    # A third of unit 0 and two thirds of unit 3 go to copies with another scale.
    share = truth.A[:, [0, 3]] * [1 / 3, 2 / 3]
    copies = Network(truth.W[[0, 3]], truth.b[[0, 3]], share, None, spec)
    reduced = truth.A.copy()
    reduced[:, [0, 3]] -= share
    padded = joined(replace_arrays(truth, A=reduced), rescaled(copies, np.array([0.25, 8.0])))
    padded = joined(joined(padded, dead), still)
    constants = still.A @ get(spec)(still.b)
    padded = replace_arrays(padded, c=padded.c - constants)
    np.testing.assert_allclose(padded(INPUTS), truth(INPUTS), rtol=1e-9, atol=1e-9)

    result = compare(padded, truth)
    assert np.all(errors(result) < 1e-10)
    np.testing.assert_array_equal(result.permutation, np.arange(5))
    assert result.unmatched == ((), ())

    turned = compare(truth, padded)
    np.testing.assert_array_equal(turned.permutation, [0, 1, 2, 3, 4, -1, -1, -1, -1, -1, -1])
    assert turned.signs.shape == (11,)
    assert turned.unmatched == ((), ())


@every_activation
@examples
@given(seed=seeds, k=st.integers(0, 5), k_truth=st.integers(0, 5))
def test_the_order_of_the_arguments_does_not_matter(spec: str, seed: int, k: int, k_truth: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_network(rng, spec, k), random_network(rng, spec, k_truth)
    there, back = compare(a, b), compare(b, a)
    assert there.weight_error == back.weight_error
    assert there.bias_error == back.bias_error
    assert there.max_angle == back.max_angle
    assert there.output_mse == back.output_mse
    assert there.unmatched == back.unmatched[::-1]
    pairs = {(i, int(j)) for i, j in enumerate(there.permutation) if j >= 0}
    assert pairs == {(int(i), j) for j, i in enumerate(back.permutation) if i >= 0}
    assert len(pairs) == min(k, k_truth)
    assert all(there.signs[i] == back.signs[j] for i, j in pairs)


@pytest.mark.parametrize("spec", ["relu", "sigmoid", "square"])
@pytest.mark.parametrize("up_to_sign", [False, True])
def test_the_pairing_is_the_best_of_all(spec: str, up_to_sign: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        network, truth = random_network(rng, spec, 4), random_network(rng, spec, 4)
        first, second = network.fixed_scales(), truth.fixed_scales()
        P, Q = (np.column_stack([net.W, net.b]) for net in (first, second))
        allowed = (1, -1) if up_to_sign or spec in MIRROR else (1,)
        candidates = product(permutations(range(4)), product(allowed, repeat=4))
        best = min(
            candidates,
            key=lambda c: np.linalg.norm(P[list(c[0])] * np.array(c[1])[:, None] - Q, axis=1).sum(),
        )
        result = compare(network, truth, up_to_sign=up_to_sign)
        np.testing.assert_array_equal(result.permutation, best[0])
        np.testing.assert_array_equal(result.signs, best[1])


@examples
@given(seed=seeds, distance=st.sampled_from([1.0, 1e2, 1e6]))
def test_an_exact_unit_keeps_its_partner_however_wrong_another_is(seed: int, distance: float) -> None:
    rng = np.random.default_rng(seed)
    truth = random_network(rng, "relu")
    W, b = truth.W.copy(), truth.b.copy()
    W[2], b[2] = rng.standard_normal(4), distance
    network = Network(W, b, truth.A, truth.c)
    np.testing.assert_array_equal(compare(network, truth).permutation, np.arange(5))


def test_known_perturbations_give_the_errors_they_should() -> None:
    W, A = np.eye(4), np.array([[3.0, 1.0, -2.0, 0.5], [0.0, 2.0, 1.0, -1.0]])
    truth = Network(W, [0.1, 0.2, 0.3, 0.4], A, [1.0, -2.0])
    turn = 1e-3
    changed = W.copy()
    changed[1] = [0.0, np.cos(turn), np.sin(turn), 0.0]
    noise = np.array([[1e-3, 0.0, 0.0, 2e-3], [0.0, -2e-3, 0.0, 0.0]])
    network = Network(changed, [0.1, 0.2, 0.3 + 5e-4, 0.4], A + noise, [1.0 + 3e-3, -2.0 + 4e-3])
    result = compare(network, truth)
    size = np.linalg.norm(A)
    assert result.weight_error == pytest.approx(2 * np.sin(turn / 2), rel=1e-12)
    assert result.max_angle == pytest.approx(turn, rel=1e-12)
    assert result.bias_error == pytest.approx(5e-4, rel=1e-12)
    assert result.output_weight_error == pytest.approx(3e-3 / size, rel=1e-11)
    assert result.offset_error == pytest.approx(5e-3 / np.sqrt(size**2 + 5.0), rel=1e-11)


def test_weights_are_compared_at_their_length_where_the_function_fixes_it() -> None:
    truth = Network([[3.0, 4.0]], [0.0], [[1.0]], activation="sigmoid")
    network = Network([[-6.0, -8.0]], [-0.5], [[-1.0]], [1.0], activation="sigmoid")
    result = compare(network, truth)
    assert result.weight_error == pytest.approx(5.0, rel=1e-14)
    assert result.bias_error == 0.5
    assert result.max_angle == pytest.approx(0.0, abs=1e-15)
    assert result.output_weight_error == 0.0
    assert result.offset_error == 0.0
    assert result.signs.tolist() == [-1]


@pytest.mark.parametrize("angle", [1e-14, 1e-12, 1e-9, 1e-6, 0.5, np.pi / 2, 3.0, np.pi])
def test_angles_are_resolved_from_the_smallest_to_the_largest(angle: float) -> None:
    truth = Network([[0.0, 5.0]], None, [[1.0]])
    network = Network([[-3.0 * np.sin(angle), 3.0 * np.cos(angle)]], None, [[1.0]])
    result = compare(network, truth)
    # Two unit vectors are each rounded by about 1e-16.
    assert result.max_angle == pytest.approx(angle, rel=1e-14, abs=3e-16)
    assert result.weight_error == pytest.approx(2 * np.sin(angle / 2), rel=1e-14, abs=3e-16)


def test_up_to_sign_forgives_the_mirror_image_and_nothing_else() -> None:
    truth = random_network(np.random.default_rng(0), "relu")
    signs = np.array([1, -1, -1, 1, -1])
    network = replace_arrays(truth, W=truth.W * signs[:, None], b=truth.b * signs).take([4, 0, 1, 2, 3])
    lenient, strict = compare(network, truth, up_to_sign=True), compare(network, truth)
    np.testing.assert_array_equal(lenient.signs, signs)
    np.testing.assert_array_equal(lenient.permutation, [1, 2, 3, 4, 0])
    assert errors(lenient)[:5].max() < 1e-14
    assert strict.weight_error > 0.1
    np.testing.assert_array_equal(strict.signs, np.ones(5))
    # It is another function all the same, and the output error says so.
    assert lenient.output_mse == strict.output_mse > 0.1


@pytest.mark.parametrize("spec", list(MIRROR))
def test_up_to_sign_changes_nothing_where_the_mirror_image_is_the_same_function(spec: str) -> None:
    rng = np.random.default_rng(1)
    network, truth = random_network(rng, spec), random_network(rng, spec)
    plain, lenient = compare(network, truth), compare(network, truth, up_to_sign=True)
    np.testing.assert_array_equal(errors(plain), errors(lenient))
    np.testing.assert_array_equal(plain.permutation, lenient.permutation)


@every_activation
def test_units_without_a_partner_count_in_full_among_the_output_weights(spec: str) -> None:
    truth = random_network(np.random.default_rng(2), spec)
    part = truth.take([3, 0, 4])
    A = truth.normal_form().A
    lost = np.linalg.norm(A[:, [1, 2]])

    narrow = compare(part, truth)
    np.testing.assert_array_equal(narrow.permutation, [1, -1, -1, 0, 2])
    assert narrow.unmatched == ((), (1, 2))
    assert narrow.weight_error == narrow.bias_error == narrow.max_angle == 0.0
    assert narrow.output_weight_error == pytest.approx(lost / np.linalg.norm(A), rel=1e-13)
    assert narrow.output_mse > 0

    wide = compare(truth, part)
    np.testing.assert_array_equal(wide.permutation, [3, 0, 4])
    assert wide.unmatched == ((1, 2), ())
    assert wide.output_weight_error == pytest.approx(lost / np.linalg.norm(A[:, [0, 3, 4]]), rel=1e-13)


def test_networks_without_units() -> None:
    empty = Network(np.zeros((0, 4)), None, np.zeros((3, 0)), [1.0, 2.0, 2.0])
    some = random_network(np.random.default_rng(3), "relu", k=2)

    both = compare(empty, replace_arrays(empty, c=np.array([1.0, 2.0, 5.0])))
    np.testing.assert_allclose(errors(both), [0, 0, 0, 3 / np.sqrt(30), 0, 3.0], rtol=1e-15)
    assert both.permutation.shape == (0,)
    assert both.unmatched == ((), ())

    missed = compare(empty, some)
    assert missed.weight_error == missed.bias_error == missed.max_angle == np.inf
    # Two norms of the same six numbers, summed in the order of two memory layouts: each is right to (6/2 + 1)·2⁻⁵³.
    assert missed.output_weight_error == pytest.approx(1.0, rel=9 * 2.0**-53, abs=0.0)
    np.testing.assert_array_equal(missed.permutation, [-1, -1])
    assert missed.unmatched == ((), (0, 1))

    invented = compare(some, empty)
    assert invented.weight_error == invented.output_weight_error == np.inf
    assert invented.unmatched == ((0, 1), ())

    silent = replace_arrays(some, A=np.zeros((3, 2)))
    assert errors(compare(silent, silent)).max() == 0.0
    assert compare(some, silent).offset_error == 0.0


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_relative_errors_do_not_depend_on_the_unit_of_the_outputs(scale: float) -> None:
    rng = np.random.default_rng(4)
    network, truth = random_network(rng, "step"), random_network(rng, "step")
    larger = [replace_arrays(net, A=scale * net.A, c=scale * net.c) for net in (network, truth)]
    before, after = compare(network, truth), compare(*larger)
    assert after.output_weight_error == pytest.approx(before.output_weight_error, rel=1e-13)
    assert after.offset_error == pytest.approx(before.offset_error, rel=1e-13)
    assert after.output_mse == pytest.approx(before.output_mse * scale**2, rel=1e-13)


def test_output_mse_is_the_mean_over_samples_and_outputs() -> None:
    rng = np.random.default_rng(6)
    network, truth = random_network(rng, "relu"), random_network(rng, "relu", k=3)
    X = rng.uniform(-3, 3, (7, 4))
    total = sum(np.sum((network(x[None]) - truth(x[None])) ** 2) for x in X)
    assert compare(network, truth, X=X).output_mse == pytest.approx(total / 21, rel=1e-13)

    # E (v·x)² = ‖v‖² for a standard Gaussian x, with a relative deviation of √(2/10,000).
    v = np.array([[1.0, -2.0, 0.5, 0.0]])
    line, nothing = Network(v, None, [[1.0]], activation="identity"), Network(v, None, [[0.0]], activation="identity")
    assert compare(line, nothing).output_mse == pytest.approx(5.25, rel=4 * np.sqrt(2e-4))
    assert compare(line, nothing).output_mse == compare(line, nothing).output_mse


@pytest.mark.parametrize(
    ("spec", "column", "constant"),
    [("sigmoid", 1.0, 1.0), ("step", 1.0, 1.0), ("abs", -1.0, 0.0), ("square", -1.0, 0.0), ("identity", 1.0, 0.0)],
)
def test_a_unit_and_its_mirror_image_can_cancel(spec: str, column: float, constant: float) -> None:
    w, b = np.array([0.5, -1.0, 2.0, 0.3]), 0.7
    pair = Network([w, -w], [b, -b], [[1.0, column]], activation=spec)
    np.testing.assert_allclose(pair(INPUTS), np.full((50, 1), constant), atol=1e-14)
    simple, groups = simplify(pair)
    assert simple.n_hidden == 0
    assert groups == ()
    assert simple.c == pytest.approx(constant)


@every_activation
def test_simplified_keeps_the_function_and_names_the_units(spec: str) -> None:
    base = random_network(np.random.default_rng(8), spec, k=3)
    network = joined(base.take([0, 0, 1, 2, 1]), base.take([2]))
    network = replace_arrays(network, A=network.A * [0, 1, 1, 1, 1, 1])
    simple, groups = simplify(network)
    assert groups == ((1,), (2, 4), (3, 5))
    np.testing.assert_allclose(simple(INPUTS), network(INPUTS), rtol=1e-10, atol=1e-10)
    again, same_groups = simplify(simple)
    assert same_groups == ((0,), (1,), (2,))
    np.testing.assert_allclose(again.A, simple.A, rtol=1e-14)


def test_columns_that_cancel_up_to_rounding_are_gone() -> None:
    network = Network([[1.0, 0.0]] * 3 + [[0.0, 1.0]], None, [[0.1, 0.2, -0.3, 1e-15]])
    assert np.sum(network.A[0, :3]) != 0
    assert simplify(network)[1] == ((3,),)


def test_all_indices_are_those_of_the_networks_as_given() -> None:
    whole = random_network(np.random.default_rng(9), "relu", k=6)
    network = replace_arrays(whole, A=whole.A * [0, 1, 0, 1, 1, 1])
    truth = replace_arrays(whole, A=whole.A * [1, 0, 0, 1, 1, 0]).take([5, 4, 3])
    result = compare(network, truth)
    np.testing.assert_array_equal(result.permutation, [-1, 4, 3])
    assert result.unmatched == ((1, 5), ())
    assert compare(truth, network).unmatched == ((), (1, 5))


def test_units_that_are_close_but_distinct_stay_apart() -> None:
    network = Network([[1.0, 0.0], [1.0, 1e-10], [1.0, 1e-14]], None, [[1.0, 1.0, 1.0]])
    assert simplify(network)[1] == ((0, 2), (1,))
    opposite = Network([[1.0, 0.0], [-1.0, 0.0]], [0.3, -0.3], [[1.0, 1.0]])
    assert simplify(opposite)[1] == ((0,), (1,))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Network(np.eye(3), None, np.ones((1, 3))), "same n_inputs. Got 3 and 2 instead"),
        (Network(np.eye(2), None, np.ones((4, 2))), "same n_outputs. Got 4 and 1 instead"),
        (Network(np.eye(2), None, np.ones((1, 2)), activation="power(2)"), r"activation. Got power\(2\) and relu"),
    ],
)
def test_networks_of_different_kinds_are_refused(other: Network, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(other, Network(np.eye(2), None, np.ones((1, 2))))


@pytest.mark.parametrize("shape", [(0, 2), (5, 3), (5,)])
def test_inputs_of_the_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    network = Network(np.eye(2), None, np.ones((1, 2)))
    with pytest.raises(ValueError, match="X needs"):
        compare(network, network, X=np.zeros(shape))


def test_the_population_risk_is_the_limit_of_the_output_error() -> None:
    first, second = (teacher(4, 3, 2, random_state=seed) for seed in (0, 1))
    X = np.random.default_rng(0).standard_normal((200_000, 4))
    errors = compare(first, second, X=X)
    assert errors.population_risk == pytest.approx(errors.output_mse, rel=0.02)  # the sampling error of a mean square
    assert compare(first, first).population_risk == pytest.approx(0.0, abs=1e-13)


def test_units_are_paired_by_their_weights_where_biases_are_huge() -> None:
    """Inputs around 1e7: biases off by 1e5 say less than directions."""
    W = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]])
    b = np.array([-6e5, -5e5, 4e7])
    truth = Network(W, b, [[1.0, 2.0, 3.0]])
    found = Network(W[[1, 0, 2]], np.array([-8e5, -2e5, 4e7]), [[2.0, 1.0, 3.0]])
    assert compare(found, truth).permutation.tolist() == [1, 0, 2]


# m of act(z) − act(−z) = m z, written out by hand.
SLOPES = {"relu": 1.0, "leaky_relu(0.2)": 1.2, "softplus": 1.0, "silu": 1.0, "gelu": 1.0}


def with_affine(rng: np.random.Generator, spec: str, k: int = 5) -> Network:
    return replace_arrays(random_network(rng, spec, k), C=rng.standard_normal((3, 4)))


def turned(network: Network, signs: np.ndarray, C: np.ndarray) -> Network:
    """The same function with units turned: a act(z) = a act(−z) + m a z, the line in C and c."""
    m, back = SLOPES[str(network.activation)], signs < 0
    A, W, b = network.A[:, back], network.W[back], network.b[back]
    return Network(
        network.W * signs[:, None],
        network.b * signs,
        network.A,
        network.c + m * A @ b,
        network.activation,
        C + m * A @ W,
    )


@pytest.mark.parametrize("spec", SLOPES)
@pytest.mark.parametrize("given_C", ["both", "network"])
@examples
@given(seed=seeds)
def test_beside_an_affine_term_units_are_paired_up_to_sign(spec: str, given_C: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = with_affine(rng, spec) if given_C == "both" else random_network(rng, spec)
    signs, order = rng.choice([-1, 1], 5), rng.permutation(5)
    C = np.zeros((3, 4)) if truth.C is None else truth.C
    network = rescaled(turned(truth, signs, C), np.exp(rng.uniform(-1, 1, 5))).take(order)
    result = compare(network, truth)
    assert errors(result).max() < 1e-12
    assert result.affine_error is not None
    assert result.affine_error < 1e-12
    assert result.population_risk is None or result.population_risk < 1e-24
    np.testing.assert_array_equal(result.signs, signs)
    np.testing.assert_array_equal(order[result.permutation], np.arange(5))


def test_without_an_affine_term_the_sign_is_the_functions_own() -> None:
    truth = random_network(np.random.default_rng(3), "relu")
    network = replace_arrays(truth, W=-truth.W, b=-truth.b)
    result = compare(network, truth)
    assert result.affine_error is None
    assert result.weight_error > 0.1
    assert not any(name == "affine term" for name, _, _ in result.rows())


@pytest.mark.parametrize("kind", ["shallow", "deep"])
def test_the_error_of_an_affine_term_is_relative_and_zeros_stand_in_for_none(kind: str) -> None:
    rng = np.random.default_rng(4)
    truth: Network | DeepNetwork = with_affine(rng, "relu").normal_form()
    if kind == "deep":
        layers = [(rng.standard_normal((4, 4)), None), *truth.layers]
        truth = DeepNetwork(layers, "relu", truth.C).normal_form()
    A, C = truth.layers[-1][0], truth.C
    assert C is not None
    E = 1e-3 * rng.standard_normal(C.shape)
    size = np.hypot(np.linalg.norm(A), np.linalg.norm(C))
    result = compare(truth.with_layers(truth.layers, C + E), truth)
    assert result.affine_error == pytest.approx(np.linalg.norm(E) / size, rel=1e-9)
    assert result.weight_error == result.output_weight_error == result.offset_error == 0.0
    assert ("affine term", result.affine_error) in [(name, value) for name, value, _ in result.rows()]
    without = truth.with_layers(truth.layers, None)
    assert compare(without, truth).affine_error == pytest.approx(np.linalg.norm(C) / size, rel=1e-12)
    assert compare(truth, without).affine_error == pytest.approx(np.linalg.norm(C) / np.linalg.norm(A), rel=1e-12)
    zeros = truth.with_layers(truth.layers, np.zeros_like(C))
    assert compare(zeros, without).affine_error == 0.0


def test_opposite_units_beside_an_affine_term_are_one_unit_and_a_line() -> None:
    """a relu(z) + a′ relu(−z) = (a + a′) relu(z) − a′ z; where a′ = −a only the line is left."""
    w, b = np.array([0.6, 0.8]), 0.5
    network = Network([w, -w], [b, -b], [[2.0, 1.0]], [0.0], "relu", [[1.0, 0.0]])
    smaller, groups = simplify(network)
    assert groups == ((0, 1),)
    np.testing.assert_allclose(smaller.A, [[3.0]])
    np.testing.assert_allclose(smaller.C, [[1.0 - 0.6, -0.8]])
    np.testing.assert_allclose(smaller.c, [-0.5])
    X = np.random.default_rng(0).standard_normal((9, 2))
    np.testing.assert_allclose(smaller(X), network(X), rtol=1e-13, atol=1e-14)
    line, groups = simplify(replace_arrays(network, A=np.array([[2.0, -2.0]])))
    assert groups == ()
    np.testing.assert_allclose(line.C, [[1.0 + 1.2, 1.6]])
    assert simplify(replace_arrays(network, C=None))[0].n_hidden == 2


def test_tanh_in_terms_of_sigmoid_keeps_its_affine_term() -> None:
    tanh = with_affine(np.random.default_rng(5), "tanh")
    c = tanh.c - tanh.A.sum(axis=1)
    sigmoid = Network(2.0 * tanh.W, 2.0 * tanh.b, 2.0 * tanh.A, c, "sigmoid", tanh.C)
    result = compare(tanh, sigmoid)
    assert result.affine_error == 0.0
    assert result.output_mse < 1e-28
