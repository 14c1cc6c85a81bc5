"""The simulators produce what their formulas say: geometry, characteristic functions, exact counts."""

import numpy as np
import pytest
from scipy.special import erfi

from neurecover import simulate
from neurecover.random import as_generator
from neurecover.simulate import (
    Exponential,
    Fixed,
    Gaussian,
    GaussianNoise,
    Laplace,
    Perturbed,
    Rademacher,
    Skewed,
    SparseGross,
    StudentT,
    SymmetricMixture,
    Uniform,
    UniformNoise,
    distribution,
    sample,
    sign_ambiguous,
    smoothed,
    teacher,
)

SHAPES = [(6, 4), (5, 5), (4, 9)]  # n_inputs, n_hidden: fewer, as many and more units than dimensions
KINDS = {
    "sphere": {},
    "gaussian": {},
    "orthonormal": {},
    "conditioned": {"condition": 30.0},
    "near_parallel": {"angle": 0.1},
}
C = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
Q = np.array([[1.0, 0.5, 0.0], [-0.4, 2.0, 0.3], [0.2, 0.0, 0.7]])
MU = np.array([1.0, -0.5, 0.2])


def _skew_normal(t: np.ndarray, shape: float) -> np.ndarray:
    delta = shape / np.sqrt(1.0 + shape**2)
    mean = delta * np.sqrt(2.0 / np.pi)
    s = t / np.sqrt(1.0 - mean**2)
    return np.exp(-(s**2) / 2.0) * (1.0 + 1j * erfi(delta * s / np.sqrt(2.0))) * np.exp(-1j * s * mean)


# (distribution, its characteristic function E exp(i u·x), its covariance, whether x ~ −x)
DISTRIBUTIONS = {
    "gaussian": (Gaussian(), lambda u: np.exp(-u @ u / 2), np.eye(3), True),
    "covariance": (Gaussian(MU, C), lambda u: np.exp(1j * u @ MU - u @ C @ u / 2), C, False),
    "mixture": (
        SymmetricMixture(1.0, 0.5),
        lambda u: np.cos(u.sum()) * np.exp(-(0.5**2) * u @ u / 2),
        0.25 * np.eye(3) + 1.0,
        True,
    ),
    "mixture of a vector": (
        SymmetricMixture(MU),
        lambda u: np.cos(u @ MU) * np.exp(-u @ u / 2),
        np.eye(3) + np.outer(MU, MU),
        True,
    ),
    "uniform": (Uniform(), lambda u: np.prod(np.sinc(np.sqrt(3) * u / np.pi)), np.eye(3), True),
    "laplace": (Laplace(), lambda u: np.prod(1 / (1 + u**2 / 2)), np.eye(3), True),
    "student": (
        StudentT(5),
        lambda u: np.prod(np.exp(-np.sqrt(3) * np.abs(u)) * (1 + np.sqrt(3) * np.abs(u) + u**2)),
        np.eye(3),
        True,
    ),
    "rademacher": (
        Rademacher(0.6),
        lambda u: np.prod(np.cos(0.8 * u)) * np.exp(-(0.6**2) * u @ u / 2),
        np.eye(3),
        True,
    ),
    "exponential": (Exponential(), lambda u: np.prod(np.exp(-1j * u) / (1 - 1j * u)), np.eye(3), False),
    "skewed": (Skewed(4.0), lambda u: np.prod(_skew_normal(u, 4.0)), np.eye(3), False),
    "perturbed": (
        Perturbed(Uniform(), Q, 0.3),
        lambda u: 0.7 * np.prod(np.sinc(np.sqrt(3) * u / np.pi)) + 0.3 * np.exp(-u @ Q @ Q.T @ u / 2),
        0.7 * np.eye(3) + 0.3 * Q @ Q.T,
        True,
    ),
}


@pytest.fixture(scope="module", params=DISTRIBUTIONS)
def drawn(request):
    dist, characteristic, covariance, symmetric = DISTRIBUTIONS[request.param]
    X = dist(np.random.default_rng(7), 200_000, 3)
    return X, characteristic, covariance, symmetric


def _standard_error(values: np.ndarray) -> np.ndarray:
    return np.std(values, axis=0) / np.sqrt(len(values))


def test_characteristic_function(drawn):
    X, characteristic, _, _ = drawn
    places = np.random.default_rng(1).normal(0.0, 0.8, (20, 3))
    for i in range(20):
        u = places[i]
        phase = X @ u
        expected = complex(characteristic(u))
        assert abs(np.mean(np.cos(phase)) - expected.real) < 5 * _standard_error(np.cos(phase))
        assert abs(np.mean(np.sin(phase)) - expected.imag) < 5 * _standard_error(np.sin(phase))


def test_mean_and_covariance(drawn):
    X, characteristic, covariance, _ = drawn
    # The gradient of the characteristic function at zero is i E x.
    mean = np.array([complex(characteristic(1e-5 * e)).imag / 1e-5 for e in np.eye(3)])
    assert np.all(np.abs(X.mean(axis=0) - mean) < 5 * _standard_error(X) + 1e-8)
    products = (X - mean)[:, :, None] * (X - mean)[:, None, :]
    assert np.all(np.abs(products.mean(axis=0) - covariance) < 5 * _standard_error(products))


def test_reflection_symmetry_holds_where_it_is_promised_and_only_there(drawn):
    X, _, _, symmetric = drawn
    # E sin(u·x) = 0 for every u if and only if x ~ −x.
    odd = np.sin(X @ np.vstack([np.eye(3), np.ones(3), [1.0, -1.0, 2.0]]).T)
    deviations = np.abs(odd.mean(axis=0)) / _standard_error(odd)
    assert (deviations.max() < 5) == symmetric


@pytest.mark.parametrize(
    ("dist", "kurtosis"), [(Laplace(), 6.0), (StudentT(12), 3.75), (Uniform(), 1.8), (Gaussian(), 3.0)]
)
def test_kurtosis(dist, kurtosis):
    fourth = dist(np.random.default_rng(3), 1_000_000, 1) ** 4
    assert abs(fourth.mean() - kurtosis) < 5 * _standard_error(fourth)[0]


def test_singular_covariance_stays_on_its_subspace():
    v = np.array([1.0, 2.0, -1.0])
    X = Gaussian(covariance=np.outer(v, v))(np.random.default_rng(0), 100, 3)
    np.testing.assert_allclose(X - np.outer(X @ v, v) / (v @ v), 0.0, atol=1e-6)


def test_distribution_by_name():
    assert distribution("student(8)") == StudentT(8.0)
    assert distribution(" Student ") == StudentT()
    assert distribution("uniform") == Uniform()
    assert repr(distribution("mixture(2, 0.5)")) == repr(SymmetricMixture(2.0, 0.5))
    assert distribution(Laplace()) == Laplace()


@pytest.mark.parametrize("spec", ["cauchy", "student(", "student(5)(5)", "", 3])
def test_unknown_names_list_the_known_ones(spec):
    with pytest.raises(ValueError, match=r"gaussian.*mixture.*student.*skewed"):
        distribution(spec)


@pytest.mark.parametrize("spec", ["student(two)", "student(1)", "student(5, 6)", "uniform(1)", "rademacher(2)"])
def test_bad_numbers_in_names(spec):
    with pytest.raises(ValueError, match=r"student|uniform|rademacher"):
        distribution(spec)


@pytest.mark.parametrize(("d", "k"), SHAPES)
def test_orthonormal_teacher(d, k):
    net = teacher(d, k, 7, kind="orthonormal", random_state=0)
    gram = net.W @ net.W.T if k <= d else net.W.T @ net.W
    np.testing.assert_allclose(gram, np.eye(min(k, d)), atol=1e-13)
    gram = net.A.T @ net.A if k <= 7 else net.A @ net.A.T
    np.testing.assert_allclose(gram, np.eye(min(k, 7)), atol=1e-13)


def test_orthonormal_teachers_are_uniform():
    # A QR factorisation without its sign correction has entries of one sign on the diagonal.
    entries = np.array([teacher(3, 3, 3, kind="orthonormal", random_state=s).W.diagonal() for s in range(400)])
    assert np.all(np.abs(entries.mean(axis=0)) < 5 / np.sqrt(3 * 400))


@pytest.mark.parametrize(("d", "k"), SHAPES)
@pytest.mark.parametrize("condition", [1.0, 4.0, 1e6])
def test_condition_numbers_are_exact(d, k, condition):
    net = teacher(d, k, 3, kind="conditioned", condition=condition, output_condition=50.0, random_state=2)
    values = np.linalg.svd(net.W, compute_uv=False)
    assert values[0] == pytest.approx(1.0)
    assert values[0] / values[-1] == pytest.approx(condition, rel=1e-8)
    np.testing.assert_allclose(values[1:] / values[:-1], values[1] / values[0], rtol=1e-8)
    assert np.linalg.cond(net.A) == pytest.approx(50.0, rel=1e-8)


@pytest.mark.parametrize(("d", "k"), [*SHAPES, (2, 6)])
@pytest.mark.parametrize("angle", [1e-4, 0.1, 2.0])
def test_pairs_have_the_angle(d, k, angle):
    W = teacher(d, k, kind="near_parallel", angle=angle, random_state=3).W
    np.testing.assert_allclose(np.linalg.norm(W, axis=1), 1.0, rtol=1e-13)
    for u, v in zip(W[0 : k - 1 : 2], W[1::2]):
        # 2 asin(‖u − v‖/2) keeps its accuracy at small angles, where acos(u·v) does not.
        assert 2 * np.arcsin(np.linalg.norm(u - v) / 2) == pytest.approx(angle, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_teachers_are_reproducible_and_well_formed(kind):
    for d, k in SHAPES:
        for p in (1, 4):
            net = teacher(d, k, p, kind=kind, random_state=11, **KINDS[kind])
            again = teacher(d, k, p, kind=kind, random_state=11, **KINDS[kind])
            other = teacher(d, k, p, kind=kind, random_state=12, **KINDS[kind])
            assert (net.W.shape, net.b.shape, net.A.shape) == ((k, d), (k,), (p, k))
            assert not net.c.any()
            for name in ("W", "b", "A"):
                np.testing.assert_array_equal(getattr(net, name), getattr(again, name))
                assert not np.array_equal(getattr(net, name), getattr(other, name))


def test_biases_are_in_units_of_the_row_norm():
    net = teacher(20, 4000, kind="conditioned", condition=10.0, bias=0.7, random_state=0)
    thresholds = net.b / np.linalg.norm(net.W, axis=1)
    # The standard error of a standard deviation s from k normal values is s/√(2k).
    assert abs(thresholds.std() - 0.7) < 5 * 0.7 / np.sqrt(2 * 4000)
    unbiased = teacher(20, 4000, kind="conditioned", condition=10.0, bias=0.0, random_state=0)
    assert not unbiased.b.any()
    np.testing.assert_array_equal(unbiased.A, net.A)


@pytest.mark.parametrize(("affine", "length"), [(True, 1.0), (2.5, 2.5), (0.0, None), (False, None)])
def test_an_affine_term_has_rows_of_its_length_and_leaves_the_rest_as_it_is(affine, length):
    plain = teacher(6, 4, 3, random_state=5)
    network = teacher(6, 4, 3, affine=affine, random_state=5)
    assert plain.C is None
    for name in ("W", "b", "A", "c"):
        np.testing.assert_array_equal(getattr(network, name), getattr(plain, name))
    if length is None:
        assert network.C is None
    else:
        np.testing.assert_allclose(np.linalg.norm(network.C, axis=1), length)


def test_output_weights():
    mixed, positive = (teacher(5, 400, signs=s, random_state=1).A for s in ("mixed", "positive"))
    for A in (mixed, positive):
        assert np.all((np.abs(A) >= 0.5) & (np.abs(A) <= 1.5))
    assert np.all(positive > 0)
    assert abs(np.mean(np.sign(mixed))) < 5 / np.sqrt(400)
    np.testing.assert_allclose(np.linalg.norm(teacher(5, 4, 3, random_state=1).A, axis=0), 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_inputs": 0}, "n_inputs"),
        ({"n_hidden": -2}, "n_hidden"),
        ({"n_outputs": 1.5}, "n_outputs"),
        ({"kind": "sparse"}, "gaussian, orthonormal"),
        ({"kind": "conditioned"}, "condition"),
        ({"condition": 5.0}, "condition"),
        ({"kind": "conditioned", "condition": 0.5}, "1 or more"),
        ({"kind": "conditioned", "condition": np.nan}, "1 or more"),
        ({"n_hidden": 1, "kind": "conditioned", "condition": 2.0}, "can only be 1"),
        ({"output_condition": 2.0}, "can only be 1"),
        ({"kind": "near_parallel"}, "angle"),
        ({"angle": 0.1}, "angle"),
        ({"kind": "near_parallel", "angle": 0.0}, "radians"),
        ({"kind": "near_parallel", "angle": 0.1, "n_inputs": 1}, "two or more inputs"),
        ({"bias": -1.0}, "bias"),
        ({"affine": -1.0}, "affine"),
        ({"signs": "negative"}, "mixed, positive"),
        ({"signs": "positive", "n_outputs": 2}, "one output"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": "seed"}, "random_state"),
    ],
)
def test_teacher_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        teacher(**({"n_inputs": 4, "n_hidden": 3} | arguments))


@pytest.mark.parametrize("d", [5, 80])
def test_smoothing_moves_rows_by_its_scale_in_any_dimension(d):
    net = teacher(d, 2000, 6, random_state=0)
    moved = smoothed(net, 0.3, random_state=1)
    squares = np.sum((moved.W - net.W) ** 2, axis=1)
    assert abs(squares.mean() - 0.3**2) < 5 * _standard_error(squares)
    np.testing.assert_array_equal(moved.A, net.A)
    np.testing.assert_array_equal(moved.b, net.b)
    both = smoothed(net, 0.3, output_weights=True, random_state=1)
    np.testing.assert_array_equal(both.W, moved.W)
    squares = np.sum((both.A - net.A) ** 2, axis=0)
    assert abs(squares.mean() - 0.3**2) < 5 * _standard_error(squares)


def test_smoothing_restores_rank():
    net = teacher(6, 4, random_state=0)
    flat = simulate.smoothed(type(net)(np.repeat(net.W[:1], 4, axis=0), net.b, net.A), 0.1, random_state=0)
    assert np.linalg.matrix_rank(flat.W) == 4


@pytest.mark.parametrize(("d", "k"), [(2, 3), (3, 7), (8, 5), (5, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_sign_ambiguous_networks_are_one_function(d, k, seed):
    f, g = sign_ambiguous(d, k, random_state=seed)
    X = np.random.default_rng(seed).normal(0.0, 3.0, (500, d))
    np.testing.assert_allclose(f(X), g(X), rtol=0, atol=1e-12)
    assert np.std(f(X)) > 0.1
    # No unit of g points where a unit of f does, so neither permutation nor scaling makes them equal.
    assert np.max(f.W @ g.W.T) < 1 - 1e-6
    np.testing.assert_array_equal(f.W @ X.T > 0, g.W @ X.T < 0)
    assert np.linalg.matrix_rank(f.W) == min(d, k - 1)


@pytest.mark.parametrize(("d", "k"), [(1, 3), (3, 2), (0, 3)])
def test_sign_ambiguity_needs_room(d, k):
    with pytest.raises(ValueError, match="n_inputs"):
        sign_ambiguous(d, k)


def test_samples_without_noise_are_the_function():
    net = teacher(4, 3, 2, random_state=0)
    X, Y = sample(net, 50, inputs="laplace", random_state=1)
    assert (X.shape, Y.shape) == ((50, 4), (50, 2))
    np.testing.assert_array_equal(Y, net(X))


def test_same_seed_same_samples_and_same_inputs_at_every_noise():
    net = teacher(4, 3, 2, random_state=0)
    X, Y = sample(net, 50, noise=0.1, random_state=1)
    again_X, again_Y = sample(net, 50, noise=GaussianNoise(0.1), random_state=1)
    np.testing.assert_array_equal(X, again_X)
    np.testing.assert_array_equal(Y, again_Y)
    np.testing.assert_array_equal(X, sample(net, 50, noise=SparseGross(0.1, 5.0), random_state=1)[0])
    assert not np.array_equal(X, sample(net, 50, random_state=2)[0])


def test_inputs_share_nothing_with_the_teacher_of_the_same_seed():
    net = teacher(6, 4, random_state=5)
    X, _ = sample(net, 4, random_state=5)
    start = as_generator(5).standard_normal((4, 6))
    for rows in (X, start):
        cosines = np.abs(np.sum(net.W * rows, axis=1)) / np.linalg.norm(rows, axis=1)
        assert np.all(cosines < 0.99)


def test_noise_has_its_scale():
    rng, Y = np.random.default_rng(0), np.zeros((100_000, 2))
    for noise in (GaussianNoise(0.3), UniformNoise(0.3)):
        squares = noise(rng, Y).ravel() ** 2
        assert abs(squares.mean() - 0.09) < 5 * _standard_error(squares)
    assert np.max(np.abs(UniformNoise(0.3)(rng, Y))) <= np.sqrt(3) * 0.3


@pytest.mark.parametrize("fraction", [0.0, 0.013, 0.5, 1.0])
def test_sparse_noise_hits_exactly_its_share(fraction):
    E = SparseGross(fraction, 7.0)(np.random.default_rng(0), np.zeros((1000, 3)))
    hit = E != 0
    assert E.shape == (1000, 3)
    assert hit.sum() == round(3000 * fraction)
    assert np.all(np.abs(E[hit]) == 7.0)
    if fraction == 1.0:
        assert abs(np.mean(np.sign(E))) < 5 / np.sqrt(3000)


def test_fixed_noise_is_added_as_it_is():
    net = teacher(4, 3, 2, random_state=0)
    E = np.arange(20.0).reshape(10, 2)
    X, Y = sample(net, 10, noise=Fixed(E), random_state=0)
    np.testing.assert_array_equal(Y, net(X) + E)
    with pytest.raises(ValueError, match=r"\(10, 2\)"):
        sample(net, 10, noise=Fixed(E.T), random_state=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples"),
        ({"noise": -0.1}, "noise must be a finite number"),
        ({"noise": "loud"}, "noise"),
        ({"noise": lambda rng, Y: np.zeros(3)}, "shape"),
        ({"inputs": lambda rng, n, d: np.zeros((n, d + 1))}, "shape"),
        ({"inputs": Gaussian(covariance=C)}, "covariance"),
        ({"inputs": SymmetricMixture(MU)}, "center"),
        ({"inputs": Perturbed(Uniform(), Q, 0.1)}, "Q"),
    ],
)
def test_sample_refuses(arguments, message):
    net = teacher(4, 3, random_state=0)
    with pytest.raises(ValueError, match=message):
        sample(net, **({"n_samples": 10, "random_state": 0} | arguments))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Gaussian(covariance=-np.eye(2)), "negative eigenvalue"),
        (lambda: Gaussian(covariance=[[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: Gaussian(np.inf), "finite"),
        (lambda: SymmetricMixture(scale=-1.0), "scale"),
        (lambda: StudentT(2.0), "above 2"),
        (lambda: Rademacher(1.5), "jitter"),
        (lambda: Skewed(np.nan), "shape"),
        (lambda: Perturbed(Uniform(), Q, 1.5), "weight"),
        (lambda: Perturbed("uniform", Q, 0.5), "base"),
        (lambda: SparseGross(1.2, 1.0), "fraction"),
        (lambda: UniformNoise(-1.0), "scale"),
    ],
)
def test_parameters_are_checked(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_random_states():
    a, b = as_generator(3), as_generator(np.int64(3))
    assert a.random() == b.random()
    assert as_generator(a) is a
    assert as_generator(a, "anything") is a
    assert as_generator(3, "truth").random() != as_generator(3, "start").random()
    legacy = [np.random.RandomState(3) for _ in range(2)]
    first, second = (as_generator(r).random() for r in legacy)
    assert first == second
    assert as_generator(legacy[0]).random() != first
    assert as_generator().random() != as_generator().random()
