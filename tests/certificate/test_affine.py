"""The certificate of networks with an affine term, y = A h_L + C x + c: every weight vouched for, C among them."""

from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate import Case, CertificateOptions, Evidence, advice, certify
from neurecover.certificate.information.normal_form import ToNormalForm, aligned
from neurecover.certificate.information.tangent import Formed, tangent_at
from neurecover.certificate.signs.ambiguity import turned
from neurecover.certificate.signs.exchange import least_apart
from neurecover.data import ArraySource, Whitening, prepare_samples, reduce
from neurecover.data.views.whitening import unwhiten
from neurecover.models import are_biases, parameters, with_parameters
from neurecover.statistics import Residuals

Layered = nr.Network | nr.DeepNetwork


def shallow(d: int, k: int, p: int = 1, seed: int = 0, activation: str = "relu") -> nr.Network:
    return nr.simulate.teacher(d, k, p, bias=0.5, activation=activation, affine=1.0, random_state=seed)


def deep(seed: int = 0, activation: str = "relu") -> nr.DeepNetwork:
    """6-5-4-1, every unit on and off for a twentieth of standard Gaussian inputs at least."""
    rng, X = np.random.default_rng(seed), np.random.default_rng(0).standard_normal((2_000, 6))
    while True:
        layers = [(1.4 * rng.standard_normal((o, i)) / i**0.5, 0.3 * rng.standard_normal(o)) for i, o in SIZES]
        network = nr.DeepNetwork(layers, activation, C=rng.standard_normal((1, 6)))
        if all(0.05 < on < 0.95 for Z in network.preactivations(X) for on in (Z > 0.0).mean(axis=0)):
            return network


SIZES = ((6, 5), (5, 4), (4, 1))


def certified(
    network: Layered, X: np.ndarray, Y: np.ndarray | None = None, options: CertificateOptions | None = None
) -> nr.Certificate:
    """The certificate of a network on samples that are its own answers, or others."""
    rng = np.random.default_rng(2)
    Y = network(X) if Y is None else Y
    given = prepare_samples(ArraySource(X, Y), True, rng)
    matrix, mean = given.whitening.matrix, given.whitening.mean
    on_white = unwhiten(network, Whitening(-mean @ matrix, np.linalg.inv(matrix)))
    np.testing.assert_allclose(on_white((X - mean) @ matrix), network(X), atol=1e-10)
    holdout = reduce(given.holdout, Residuals(on_white, network.n_outputs, 2, given.output_mean))
    evidence = Evidence(network.n_hidden, agreements=1)
    options = options or CertificateOptions()
    return certify(Case(on_white, given.whitening, given.samples, holdout, evidence, rng, options=options))


def failed(certificate: nr.Certificate) -> set[str]:
    return {check.name for check in certificate.checks if not check.passed}


def with_bias(network: nr.Network, unit: int, bias: float) -> nr.Network:
    b = network.b.copy()
    b[unit] = bias
    return nr.Network(network.W, b, network.A, network.c, C=network.C)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["relu", "softplus", "tanh", "several outputs", "deep"])
def test_exact_means_every_weight(kind: str, seed: int) -> None:
    truth: Layered = deep(seed) if kind == "deep" else shallow(6, 6, 3 if "outputs" in kind else 1, seed)
    if kind in ("softplus", "tanh"):
        truth = shallow(4, 3, 1, seed, kind)
    X = np.random.default_rng(seed).standard_normal((3_000 if kind == "deep" else 800, truth.n_inputs))
    X = X if kind == "deep" else X + 0.5
    found = nr.recover(X, truth(X), truth.n_hidden, activation=truth.activation, affine=True, random_state=seed)
    assert found.certificate.verdict == "exact", found.summary()
    assert list(found.certificate.standard_errors) == list(truth.arrays)
    assert all(mask.all() for mask in found.certificate.determined.values())
    apart = nr.compare(found.network, truth)
    assert max(apart.weight_error, apart.affine_error, apart.output_weight_error) < 1e-8


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["relu", "softplus", "tanh", "exp", "deep relu", "deep tanh"])
def test_errors_of_whitened_inputs_are_carried_to_the_normal_form(kind: str, bias: bool) -> None:
    """T δ is the derivative of the normal form along δ, with turned units and the scales of rows fixed."""
    rng = np.random.default_rng(1)
    activation = kind.split()[-1]
    model: Layered = deep(1, activation) if "deep" in kind else shallow(5, 4, 2, 1, activation)
    mean = rng.standard_normal(model.n_inputs) if bias else np.zeros(model.n_inputs)
    if not bias:
        model = with_parameters(model, np.where(are_biases(model), 0.0, parameters(model)))
    whitening = Whitening(mean, rng.standard_normal((model.n_inputs, model.n_inputs)))
    white, normal = aligned(model, whitening)
    Z = rng.standard_normal((50, model.n_inputs))
    X = mean + np.linalg.solve(whitening.matrix.T, Z.T).T
    np.testing.assert_allclose(white(Z), model(Z), atol=1e-9)
    np.testing.assert_allclose(normal(X), model(Z), atol=1e-9)
    np.testing.assert_allclose(parameters(unwhiten(white, whitening)), parameters(normal), atol=1e-9)
    fixed = np.zeros(len(parameters(white)), dtype=bool) if bias else are_biases(white)
    if activation == "exp":  # which has its biases in the weights above
        fixed |= np.arange(len(fixed)) // len(white.b) == white.n_inputs
    free = np.flatnonzero(~fixed) if not bias else np.arange(len(fixed))
    change = rng.standard_normal(len(free)) * ~fixed[free]
    step = np.zeros(len(fixed))
    step[free] = 1e-6 * change
    one, other = (
        parameters(unwhiten(with_parameters(white, parameters(white) + sign * step), whitening).fixed_scales())
        for sign in (1.0, -1.0)
    )
    moved = ToNormalForm(white, free, normal, whitening)(change[:, None])[:, 0]
    np.testing.assert_allclose(moved, (one - other) / 2e-6, atol=1e-6 * np.abs(moved).max())


def test_turned_units_have_the_same_errors() -> None:
    """(w, b) → −(w, b) with C and c beside it is the same network, and its certificate is the same."""
    truth, rng = shallow(4, 3, 2), np.random.default_rng(0)
    X = rng.standard_normal((1_500, 4))
    Y = truth(X) + 0.05 * rng.standard_normal((1_500, 2))
    other = turned(truth, np.array([-1, 1, -1]))
    np.testing.assert_allclose(other(X), truth(X), atol=1e-13)
    first, second = certified(truth, X, Y), certified(other, X, Y)
    assert first.verdict == second.verdict == "statistical"
    for name, errors in first.standard_errors.items():
        np.testing.assert_allclose(second.standard_errors[name], errors, rtol=1e-6)


def test_intervals_cover() -> None:
    """Of 29 weights of 14 networks, some with inputs far from zero: 95 % intervals cover 92 % or more."""
    deviations: list[np.ndarray] = []
    for seed in range(14):
        rng, truth = np.random.default_rng(seed), shallow(4, 3, 2, seed)
        mean = float(3 * (seed % 2))
        truth = nr.Network(truth.W, truth.b - mean * truth.W.sum(axis=1), np.sign(truth.A), truth.c, C=truth.C)
        X = mean + rng.standard_normal((3_000, 4))
        Y = truth(X)
        found = nr.recover(X, Y + 0.05 * Y.std() * rng.standard_normal(Y.shape), 3, affine=True, random_state=seed)
        if found.certificate.verdict != "statistical":
            continue
        paired = nr.compare(found.network, truth)
        order = np.argsort(paired.permutation)
        same = turned(truth.fixed_scales(), paired.signs).take(order)
        deviations += [
            ((found.network.arrays[name] - same.arrays[name]) / errors).ravel()
            for name, errors in found.certificate.standard_errors.items()
        ]
    z = np.abs(np.concatenate(deviations))
    assert len(z) >= 10 * truth.n_parameters
    assert 0.92 <= np.mean(z < 1.96) <= 0.98
    assert z.max() < 5.0


@pytest.mark.parametrize("bias", [9.0, -9.0, 2.4, -2.4])
def test_a_unit_that_hardly_switches_is_undetermined_and_so_is_the_term(bias: float) -> None:
    """On for every sample, A_u w_uᵀ x is a part of C x; seldom on or seldom off, other weights fit."""
    X = np.random.default_rng(0).standard_normal((800, 6))
    network = with_bias(shallow(6, 5, 2), 2, bias)
    seen = np.count_nonzero(network.preactivations(X)[0][:, 2] > 0.0)
    assert min(seen, 800 - seen) < 8
    certificate = certified(network, X)
    assert certificate.verdict == "approximate"
    assert "kinks" in failed(certificate)
    assert ("information" in failed(certificate)) or seen not in (0, 800)
    mask = certificate.determined
    others = np.delete(np.arange(5), 2)
    assert not mask.W[2].any()
    assert not mask.b[2]
    assert not mask.A[:, 2].any()
    assert not mask.C.any()
    assert not mask.c.any()
    assert mask.W[others].all()
    assert mask.b[others].all()
    assert mask.A[:, others].all()
    assert any("All weights are exact but those of unit 2" in reason for reason in certificate.reasons)


@pytest.mark.parametrize("n_hidden", [5, None])
def test_what_is_recovered_of_a_unit_that_is_always_on(n_hidden: int | None) -> None:
    """With its number given nothing is exact; without, it is said to be in the affine term."""
    X = np.random.default_rng(0).standard_normal((800, 6))
    truth = with_bias(shallow(6, 5), 2, 9.0)
    found = nr.recover(X, truth(X), n_hidden, affine=True, random_state=0)
    if n_hidden is None:
        assert found.certificate.verdict == "exact"
        assert found.network.n_hidden == 4
        assert any("is a part of the affine term" in reason for reason in found.certificate.reasons)
        return
    assert found.certificate.verdict == "approximate"
    mask = found.certificate.determined
    assert mask is None or not mask.C.any()


@pytest.mark.parametrize(("columns", "least"), [("constant", 3), ("doubled", 3), ("rare", 0), ("indicators", 3)])
def test_nothing_marked_as_determined_is_wrong(columns: str, least: int) -> None:
    """Five seeds each, `least` of them with a mask of which some is open."""
    partly = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth, X = shallow(5, 3, 2, seed), rng.standard_normal((600, 5))
        if columns == "constant":
            X[:, 1] = 2.0
        elif columns == "doubled":
            X[:, 1] = 2.0 * X[:, 0]
        elif columns == "rare":
            X[rng.permutation(600)[5:], 1] = 0.0
        else:
            X[:, :2] = np.eye(2)[rng.integers(0, 2, 600)]
        found = nr.recover(X, truth(X), 3, affine=True, random_state=seed, time_budget=2.0)
        mask, ours = found.certificate.determined, found.network
        if found.certificate.verdict == "exact":  # five rows may be enough for a column, of two outputs
            assert columns == "rare"
            assert nr.compare(ours, truth).weight_error < 1e-7
        elif mask is not None:
            partly += 1
            units = np.flatnonzero(mask.W.any(axis=1))
            known = mask.W[units].all(axis=0)
            assert not mask.C[:, ~known].any()
            for j in units:  # the unit of the truth with the same slopes A_j w_jᵀ on what is known, up to sign
                slopes = np.einsum("oj,ji->joi", truth.A, truth.W[:, known])
                own = np.outer(ours.A[:, j], ours.W[j, known])
                assert min(min(np.abs(own - s).max(), np.abs(own + s).max()) for s in slopes) < 1e-7
            if mask.C[:, known].all():  # C and half of Σ A_j w_jᵀ are one matrix whatever the signs
                assert len(units) == 3
                both = [net.C[:, known] + net.A @ net.W[:, known] / 2.0 for net in (ours, truth)]
                np.testing.assert_allclose(*both, atol=1e-7)
    assert partly >= least


def test_signs_are_a_convention_beside_one_layer_and_determined_beside_several() -> None:
    truth = shallow(4, 3)
    X = np.random.default_rng(0).standard_normal((2_000, 4))
    signs = [check for check in certified(truth, X).checks if check.name == "signs"]
    assert all(check.passed for check in signs)
    assert "convention" in signs[0].sentence
    # Units 0 and 1 of the first layer may be turned together: their columns above add up to nothing.
    rng = np.random.default_rng(3)
    W, V = rng.standard_normal((3, 4)), rng.standard_normal((2, 3))
    W[1] = W[0]
    V[:, 1] = -V[:, 0]
    layers = [(W, np.array([0.5, -0.5, 0.2])), (V, np.array([0.3, 0.4])), (np.array([[1.0, -0.7]]), None)]
    for C in (None, rng.standard_normal((1, 4))):
        certificate = certified(nr.DeepNetwork(layers, C=C), X)
        assert certificate.verdict == "approximate"
        assert "signs" in failed(certificate)
        assert any("2 choices of the units' signs" in reason for reason in certificate.reasons)


def test_ambiguities_and_exchanges_know_the_term() -> None:
    W, A = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]]), np.ones((1, 3))
    A = np.abs(np.linalg.lstsq(W.T, np.zeros(2), rcond=None)[0])[None] + A  # Σ A_j w_jᵀ = 0
    assert not nr.sign_ambiguities(nr.Network(W, None, A)).unique
    assert nr.sign_ambiguities(nr.Network(W, None, A, C=np.zeros((1, 2)))).unique
    # On the column of more than two values the slopes are opposite: with C they may have exchanged the other column.
    W, A = np.array([[1.0, 0.5], [-1.0, 0.3]]), np.array([[2.0, 2.0]])
    X = np.column_stack([np.linspace(-1, 1, 40), np.arange(40) % 2])
    source = ArraySource(X, np.zeros((40, 1)))
    assert least_apart(nr.Network(W, None, A), None, source) > CertificateOptions().apart
    assert least_apart(nr.Network(W, None, A, C=np.zeros((1, 2))), None, source) < CertificateOptions().apart


@pytest.mark.parametrize("network", [shallow(4, 3, 2), deep(), nr.simulate.teacher(4, 3, 2, random_state=0)])
def test_products_without_a_jacobian_agree_with_it(network: Layered) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, network.n_inputs))
    few, whole = tangent_at(network)(X), Formed(network, X)
    g, steps = rng.standard_normal((2, 30, network.n_outputs)), rng.standard_normal((2, network.n_parameters))
    np.testing.assert_allclose(few.backward(g), whole.backward(g), atol=1e-12)
    np.testing.assert_allclose(few.forward(steps), whole.forward(steps), atol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_streams_with_weights_and_without(noise: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 200_000)
    truth, rng = shallow(4, 3), np.random.default_rng(0)
    X = rng.standard_normal((20_000, 4))
    y = truth(X)[:, 0] + noise * rng.standard_normal(20_000)
    columns = {f"x{i}": X[:, i] for i in range(4)} | {"y": y, "w": rng.uniform(0.5, 2.0, 20_000)}
    pq.write_table(pa.table(columns), tmp_path / "samples.parquet", row_group_size=4_000)
    for weight in (None, "w"):
        source = nr.open(tmp_path / "samples.parquet", inputs=["x0", "x1", "x2", "x3"], outputs=["y"], weight=weight)
        assert source.base.streams
        found = nr.recover(source, n_hidden=3, affine=True, random_state=0)
        assert found.certificate.verdict == ("statistical" if noise else "exact")
        error = np.abs(found.network.normal_form().C - _like(truth, found.network).C) / np.maximum(
            found.certificate.standard_errors.C, 1e-13
        )
        assert error.max() < 5.0


def _like(truth: nr.Network, found: nr.Network) -> nr.Network:
    """The truth with the signs of what was found."""
    return turned(truth.fixed_scales(), nr.compare(found, truth).signs)


def test_without_a_term_the_advice_is_to_seek_it() -> None:
    truth, rng = shallow(5, 4, 2), np.random.default_rng(0)
    X = rng.standard_normal((2_000, 5))
    for noise in (0.0, 0.05):
        Y = truth(X) + noise * rng.standard_normal((2_000, 2))
        found = nr.recover(X, Y, 4, random_state=0, time_budget=20.0)
        assert found.certificate.verdict == "approximate"
        assert "affine part" in failed(found.certificate)
        assert advice(found.certificate)[0].startswith("Try affine=True")
        assert any("linear term, which was not sought" in reason for reason in found.certificate.reasons)
        again = nr.recover(X, Y, 4, affine=True, random_state=0)
        assert again.certificate.verdict == ("statistical" if noise else "exact")


def test_more_weights_than_are_tested_are_said_to_be_untested() -> None:
    """With noise, that is; without it they are tested by products."""
    truth, rng, options = shallow(4, 3), np.random.default_rng(0), CertificateOptions(max_parameters=10)
    X = rng.standard_normal((500, 4))
    certificate = certified(truth, X, truth(X) + 0.01 * rng.standard_normal((500, 1)), options)
    assert certificate.verdict == "approximate"
    assert failed(certificate) == {"size", "rounding"}
    assert any("more than the 10 whose identifiability is checked" in reason for reason in certificate.reasons)


def test_a_recovery_with_a_term_is_saved_shown_and_read(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    truth = shallow(4, 3, 2)
    X = np.random.default_rng(0).standard_normal((800, 4))
    found = nr.recover(X, truth(X), 3, affine=True, random_state=0)
    found.save(tmp_path / "found.npz")
    again = nr.Recovery.load(tmp_path / "found.npz")
    assert again.certificate.verdict == "exact"
    np.testing.assert_array_equal(again.network.C, found.network.C)
    for name, errors in found.certificate.standard_errors.items():
        np.testing.assert_array_equal(again.certificate.standard_errors[name], errors)
    frame = again.to_frame()
    assert len(frame) == truth.n_parameters
    assert frame["determined"].all()
    assert np.isfinite(frame["standard_error"]).all()
    assert "and an affine term" in again.summary()
