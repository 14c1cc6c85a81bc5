"""Activations: values, symmetries, inverses, and Hermite coefficients against an independent quadrature."""

import pickle
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermeval
from scipy.special import erfc
from scipy.stats import norm

from neurecover.activations import NAMES, Activation, get, scaled_hermite


def one_sided_power(c: float, z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, np.abs(z) ** c, 0.0)


DEFINITIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.where(z > 0, z, 0.0),
    "leaky_relu(0.01)": lambda z: np.where(z > 0, z, 0.01 * z),
    "leaky_relu(-0.4)": lambda z: np.where(z > 0, z, -0.4 * z),
    "leaky_relu(2.5)": lambda z: np.where(z > 0, z, 2.5 * z),
    "step": lambda z: np.where(z > 0, 1.0, 0.0),
    "sigmoid": lambda z: 0.5 + 0.5 * np.tanh(z / 2),
    "tanh": lambda z: np.sinh(z) / np.cosh(z),
    "softplus": lambda z: np.log1p(np.exp(z)),
    "gelu": lambda z: z * erfc(-np.asarray(z, dtype=float) / np.sqrt(2)) / 2,
    "silu": lambda z: z / (1 + np.exp(-z)),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "selu": lambda z: 1.0507009873554805 * np.where(z > 0, z, 1.6732632423543772 * np.expm1(np.minimum(z, 0))),
    "exp": lambda z: np.exp(z),
    "abs": lambda z: np.sign(z) * z,
    "square": lambda z: z * z,
    "identity": lambda z: 1.0 * z,
    **{f"power({c:g})": partial(one_sided_power, c) for c in (0.3, 0.5, 1, 1.5, 2, 2.7, 3, 5, 6, 7.25)},
}
SPECS = list(DEFINITIONS)
SMOOTH = ["sigmoid", "tanh", "softplus", "gelu", "silu", "elu", "selu", "exp"]
INJECTIVE = ["leaky_relu(0.01)", "leaky_relu(2.5)", "identity", "sigmoid", "tanh", "softplus", "elu", "selu", "exp"]

# Numbers below the normal range have fewer digits, and no identity holds to 1e-12 there.
finite = st.floats(-50, 50, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-100)
vectors = st.lists(finite, min_size=1, max_size=20).map(np.array)
examples = settings(max_examples=300, deadline=None)


def reference_coefficients(act: Callable, b: np.ndarray, degree: int, step: float) -> np.ndarray:
    """∫ act(z) He_j(z − b) φ(z − b) dz, and in a second row the integral of the absolute value.

    Double-exponential rule on each side of the kink, |z| = exp(u − e^{−u}), in the widest float at hand: for
    power(6) the terms reach 1e6 where their sum is below one.
    """
    u = np.arange(-5, 3.3, step, dtype=np.longdouble)
    z, w = np.exp(u - np.exp(-u)), step * np.exp(u - np.exp(-u)) * (1 + np.exp(-u))
    z, w = np.concatenate([-z, z]), np.concatenate([w, w])
    g = z[:, None] - b
    mass = (w * act(z))[:, None] * np.exp(-g * g / 2) / np.sqrt(2 * np.longdouble(np.pi))
    terms = [mass * hermeval(g, np.eye(degree + 1)[j]) for j in range(degree + 1)]
    return np.array([[t.sum(axis=0) for t in terms], [np.abs(t).sum(axis=0) for t in terms]])


@pytest.mark.parametrize("spec", SPECS)
def test_hermite_coefficients_match_quadrature(spec: str) -> None:
    b = np.linspace(-4, 4, 21)
    expected, size = reference_coefficients(DEFINITIONS[spec], b, degree=8, step=1 / 64)
    coarser, _ = reference_coefficients(DEFINITIONS[spec], b, degree=8, step=1 / 32)
    scale = np.maximum(1, np.abs(expected))
    # Where long doubles are no wider than doubles, the reference keeps only eps·∫|…|.
    rounding = 8 * np.finfo(np.longdouble).eps * size / scale
    assert np.all(np.abs(coarser - expected) / scale < 1e-13 + rounding), "the reference has not converged"
    assert np.all(np.abs(get(spec).hermite(b, 8) - expected) / scale < 1e-12 + rounding)


def test_relu_coefficients_are_those_of_the_lemma() -> None:
    # [ATV21, Lemma 3.5]
    b = np.linspace(-4, 4, 33)
    h = get("relu").hermite(b, 8)
    np.testing.assert_allclose(h[0], b * norm.cdf(b) + norm.pdf(b), atol=1e-15)
    np.testing.assert_allclose(h[1], norm.cdf(b), atol=1e-15)
    for j in range(2, 9):
        expected = (-1) ** j * hermeval(b, np.eye(j - 1)[j - 2]) * norm.pdf(b)
        np.testing.assert_allclose(h[j], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_hermite_shape_and_prefix(spec: str, shape: tuple[int, ...]) -> None:
    b = np.linspace(-2, 3, int(np.prod(shape))).reshape(shape)
    h = get(spec).hermite(b, 5)
    assert h.shape == (6, *shape)
    for degree in (0, 1, 3):
        np.testing.assert_allclose(get(spec).hermite(b, degree), h[: degree + 1], rtol=1e-12, atol=1e-13)
    for index in np.ndindex(shape):
        np.testing.assert_allclose(get(spec).hermite(b[index], 5), h[(slice(None), *index)], atol=1e-13)


@pytest.mark.parametrize("spec", SPECS)
def test_each_coefficient_is_the_derivative_of_the_one_before(spec: str) -> None:
    b, step = np.linspace(-4, 4, 15), 1e-3
    h = {i: get(spec).hermite(b + i * step, 8) for i in (-2, -1, 0, 1, 2)}
    slope = (h[-2] - 8 * h[-1] + 8 * h[1] - h[2]) / (12 * step)
    scale = np.maximum(1, np.abs(h[0]).max(axis=0))
    assert np.max(np.abs(slope[:-1] - h[0][1:]) / scale) < 1e-8


@pytest.mark.parametrize("spec", ["square", "identity"])
def test_polynomials_have_no_coefficient_above_their_degree(spec: str) -> None:
    assert not get(spec).hermite(np.linspace(-4, 4, 101), 8)[3:].any()


@pytest.mark.parametrize("spec", ["power(0.5)", "power(2.5)", "power(3)", "power(7)"])
def test_far_biases_reach_the_polynomial_and_zero(spec: str) -> None:
    # E[(g + b)^c] = b^c (1 + c(c−1)/(2b²) + O(b⁻⁴)) when the kink is out of reach.
    c = get(spec).homogeneity
    assert c is not None
    far = get(spec).hermite(np.array([1e3, -1e3]), 2)
    np.testing.assert_allclose(far[0, 0], 1e3**c * (1 + c * (c - 1) / 2e6), rtol=1e-9)
    np.testing.assert_allclose(far[1, 0], c * 1e3 ** (c - 1), rtol=1e-4)
    assert not far[:, 1].any()


def test_power_one_is_relu_and_leaky_minus_one_is_abs() -> None:
    b = np.linspace(-4, 4, 9)
    for one, other in [("power(1)", "relu"), ("leaky_relu(-1)", "abs"), ("leaky_relu(0)", "relu")]:
        np.testing.assert_array_equal(get(one).hermite(b, 6), get(other).hermite(b, 6))
        np.testing.assert_array_equal(get(one)(b), get(other)(b))
        assert get(one).odd_slope == get(other).odd_slope
        assert get(one).reflection == get(other).reflection


def test_negative_degree_is_refused() -> None:
    for spec in ("relu", "sigmoid", "exp"):
        with pytest.raises(ValueError, match="Got -1 instead"):
            get(spec).hermite(0.0, -1)


@examples
@given(spec=st.sampled_from(SPECS), z=vectors)
def test_value_is_the_definition(spec: str, z: np.ndarray) -> None:
    value = get(spec)(z)
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, DEFINITIONS[spec](z), rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("spec", SPECS)
def test_single_precision_is_computed_in_double(spec: str) -> None:
    z = np.linspace(-3, 3, 11, dtype=np.float32)
    np.testing.assert_array_equal(get(spec)(z), get(spec)(z.astype(float)))


@pytest.mark.parametrize("spec", SPECS)
def test_value_at_zero_and_infinity(spec: str) -> None:
    act = get(spec)
    assert act(0.0) == {"sigmoid": 0.5, "exp": 1.0, "softplus": np.log(2.0)}.get(spec, 0.0)
    assert not np.isnan(act(np.array([-np.inf, np.inf]))).any()
    assert np.isnan(act(np.nan))


def test_sigmoid_is_silent_at_extremes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z = np.array([-1e4, -800.0, 800.0, 1e4])
        np.testing.assert_array_equal(get("sigmoid")(z), [0, 0, 1, 1])
        np.testing.assert_array_equal(get("sigmoid").derivative(z), 0)


@pytest.mark.parametrize("spec", SPECS)
def test_derivative_matches_central_differences(spec: str) -> None:
    act, step = get(spec), 1e-5
    z = np.random.default_rng(0).uniform(0.05, 4, 200) * np.tile([-1, 1], 100)
    slope = (act(z + step) - act(z - step)) / (2 * step)
    np.testing.assert_allclose(act.derivative(z), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("spec", SPECS)
def test_derivative_at_the_kink_is_the_one_from_the_left(spec: str) -> None:
    act = get(spec)
    if act.homogeneity == 0:
        assert act.derivative(0.0) == 0
    else:
        assert act.derivative(0.0) == pytest.approx(float(act.derivative(-1e-12)), abs=1e-11)
    assert get("relu").derivative(0.0) == 0


@pytest.mark.parametrize("spec", SPECS)
def test_only_step_has_no_useful_derivative(spec: str) -> None:
    act = get(spec)
    assert act.differentiable == (spec != "step") == bool(np.any(act.derivative(np.linspace(-1, 1, 9))))


@examples
@given(
    spec=st.sampled_from(SPECS).filter(lambda s: s != "step"),
    z=st.lists(st.floats(1e-3, 20), min_size=1, max_size=20).map(np.array),
)
def test_inverse_undoes_the_activation_for_positive_inputs(spec: str, z: np.ndarray) -> None:
    # 1 − sigmoid(z) keeps about 16 − z/2.3 digits, and tanh(z) = 2 sigmoid(2z) − 1.
    z = z / 2 if spec == "tanh" else z
    rtol = 1e-12 + 1e-15 * np.exp({"sigmoid": 1.0, "tanh": 2.0}.get(spec, 0.0) * z.max())
    np.testing.assert_allclose(get(spec).inverse(get(spec)(z)), z, rtol=rtol)


@examples
@given(spec=st.sampled_from(INJECTIVE), z=st.lists(st.floats(-8, 8), min_size=1, max_size=20).map(np.array))
def test_injective_activations_invert_everywhere(spec: str, z: np.ndarray) -> None:
    # The slope of tanh is e^{−2·8}·4 at the ends, and rounding of 1e-16 in tanh(z) is 2e-10 in z.
    np.testing.assert_allclose(get(spec).inverse(get(spec)(z)), z, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("spec", "y", "figure"),
    [
        ("relu", [1.0, 0.0], "Got 0 instead"),
        ("relu", [2.0, -0.25, -1.0], r"Got -0\.25 instead \(2 such of 3\)"),
        ("relu", np.nan, "Got nan instead"),
        ("power(3)", 0.0, "Got 0 instead"),
        ("abs", -1.5, r"Got -1\.5 instead"),
        ("square", -2.0, "Got -2 instead"),
        ("leaky_relu(-0.4)", -3.0, "Got -3 instead"),
        ("leaky_relu(0.1)", np.nan, "Got nan instead"),
        ("sigmoid", [0.5, 1.0], "Got 1 instead"),
        ("sigmoid", 0.0, "Got 0 instead"),
        ("tanh", [0.2, -1.0], "Got -1 instead"),
        ("softplus", 0.0, "Got 0 instead"),
        ("gelu", -0.1, r"Got -0\.1 instead"),
        ("silu", -0.1, r"Got -0\.1 instead"),
        ("elu", -1.0, "Got -1 instead"),
        ("selu", -2.0, "Got -2 instead"),
        ("exp", 0.0, "Got 0 instead"),
        ("step", 1.0, "no inverse"),
    ],
)
def test_inverse_refuses_what_does_not_determine_the_input(spec: str, y: object, figure: str) -> None:
    with pytest.raises(ValueError, match=figure):
        get(spec).inverse(y)  # type: ignore[arg-type]


def test_even_activations_invert_zero() -> None:
    for spec in ("abs", "square"):
        assert get(spec).inverse(0.0) == 0


@examples
@given(spec=st.sampled_from(SPECS), z=vectors, s=st.floats(0.1, 10))
def test_homogeneity(spec: str, z: np.ndarray, s: float) -> None:
    act = get(spec)
    if act.homogeneity is None:
        assert spec in SMOOTH
    else:
        np.testing.assert_allclose(act(s * z), s**act.homogeneity * act(z), rtol=1e-12, atol=1e-300)


@examples
@given(spec=st.sampled_from([spec for spec in SPECS if get(spec).reflection is not None]), z=vectors)
def test_reflection(spec: str, z: np.ndarray) -> None:
    act = get(spec)
    assert act.reflection is not None
    sign, constant = act.reflection
    z = z[z != 0]
    np.testing.assert_allclose(act(-z), sign * act(z) + constant, rtol=1e-12, atol=1e-15)


@examples
@given(spec=st.sampled_from([spec for spec in SPECS if get(spec).odd_slope is not None]), z=vectors)
def test_odd_slope(spec: str, z: np.ndarray) -> None:
    act = get(spec)
    assert act.odd_slope is not None
    np.testing.assert_allclose(act(z) - act(-z), act.odd_slope * z, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("spec", SPECS)
def test_symmetries_are_declared_exactly_when_they_hold(spec: str) -> None:
    act, z = get(spec), np.linspace(0.1, 3, 40)
    # A least-squares fit of each identity leaves no residual exactly when the symmetry holds.
    both = np.concatenate([-z, z])
    design = np.column_stack([act(both), np.ones_like(both)])
    fit = np.linalg.lstsq(design, act(-both), rcond=None)[0]
    assert (act.reflection is not None) == (np.abs(act(-both) - design @ fit).max() < 1e-10)
    odd = act(z) - act(-z)
    slope = odd @ z / (z @ z)
    assert (act.odd_slope is not None) == (np.abs(odd - slope * z).max() < 1e-10)


def test_declared_symmetries() -> None:
    table = {
        "relu": (1, None, 1),
        "leaky_relu(0.25)": (1, None, 1.25),
        "power(3)": (3, None, None),
        "step": (0, (-1, 1), None),
        "sigmoid": (None, (-1, 1), None),
        "tanh": (None, (-1, 0), None),
        "softplus": (None, None, 1),
        "gelu": (None, None, 1),
        "silu": (None, None, 1),
        "elu": (None, None, None),
        "selu": (None, None, None),
        "exp": (None, None, None),
        "abs": (1, (1, 0), 0),
        "square": (2, (1, 0), 0),
        "identity": (1, (-1, 0), 2),
    }
    for spec, expected in table.items():
        act = get(spec)
        assert (act.homogeneity, act.reflection, act.odd_slope) == expected
    assert {get(spec).name for spec in table} == set(NAMES)


@pytest.mark.parametrize("spec", [*SPECS, *NAMES])
def test_spec_round_trip(spec: str) -> None:
    act = get(spec)
    assert isinstance(act, Activation)
    assert get(act) is act
    assert get(str(act)) == act
    assert hash(get(str(act))) == hash(act)
    assert pickle.loads(pickle.dumps(act)) == act
    assert act.name == spec.partition("(")[0]


@given(c=st.floats(1e-3, 1e3), slope=st.floats(-1e6, 1e6).filter(lambda s: s != 1))
def test_every_parameter_survives_its_spec(c: float, slope: float) -> None:
    assert get(str(get(f"power({c!r})"))).homogeneity == c
    leaky = get(f"leaky_relu({slope!r})")
    assert get(str(leaky)) == leaky
    assert leaky(-1.0) == -slope


def test_spelling_of_specs() -> None:
    assert str(get("leaky_relu")) == "leaky_relu(0.01)"
    assert str(get("power")) == "power(2)"
    assert str(get("power( 2.0 )")) == "power(2)"
    assert get("leaky_relu(-0.0)") == get("leaky_relu(0)")
    assert get("leaky_relu(0.01)") == get("leaky_relu") != get("leaky_relu(0.02)")
    assert get("relu") != get("power(1)")
    assert get("ReLU") == get("relu")
    with pytest.raises(AttributeError):
        get("relu").spec = "abs"  # type: ignore[misc]


@pytest.mark.parametrize("spec", ["softmax", "", "relu)", "power(2", "re lu", None])
def test_unknown_names_are_answered_with_the_known_ones(spec: str) -> None:
    with pytest.raises(ValueError, match="activation needs to be one of") as error:
        get(spec)
    assert all(name in str(error.value) for name in NAMES)
    assert repr(spec) in str(error.value)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("relu(1)", "no parameter"),
        ("power()", "one number, as in power"),
        ("power(two)", "one number"),
        ("power(1, 2)", "one number"),
        ("power(0)", "above 0"),
        ("power(-1)", "Got -1 instead"),
        ("power(inf)", "finite"),
        ("power(nan)", "Got nan"),
        ("leaky_relu(1)", "identity"),
        ("leaky_relu(inf)", "finite"),
        ("leaky_relu(nan)", "Got nan"),
    ],
)
def test_bad_parameters_are_refused(spec: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        get(spec)


def test_other_names_of_the_same_function() -> None:
    assert get("logistic") is get("sigmoid")
    assert get("swish") is get("silu")


def test_steep_and_flat_units_have_the_coefficients_that_scaling_says() -> None:
    # tanh(z) = 2 sigmoid(2z) − 1 and softplus′ = sigmoid: F_1[softplus] = s F_0[sigmoid] by Stein's identity.
    b, s = np.array([-3.0, 0.2, 40.0, -900.0, 5.0]), np.array([0.01, 1.0, 30.0, 1000.0, 1e5])
    tanh, sigmoid = scaled_hermite(get("tanh"), b, s, 4), scaled_hermite(get("sigmoid"), 2 * b, 2 * s, 4)
    np.testing.assert_allclose(tanh - 2 * sigmoid, np.array([-1.0, 0, 0, 0, 0])[:, None] * np.ones(5), atol=1e-13)
    softplus = scaled_hermite(get("softplus"), b, s, 1)
    np.testing.assert_allclose(softplus[1] / s, scaled_hermite(get("sigmoid"), b, s, 0)[0], atol=1e-13)
    # A steep unit is a step at −b/s: P(g > −b/s), up to the φ(b/s)·(π²/6)/s² that the smooth step blurs.
    np.testing.assert_allclose(sigmoid[0, 3:], norm.cdf(b[3:] / s[3:]), atol=2e-6)
