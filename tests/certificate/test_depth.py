"""One certificate for every depth: digits of the outputs, weights, streams, and more weights than a matrix takes."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate import Case, CertificateOptions, Evidence, certify
from neurecover.data import ArraySource, Source, Whitening, prepare_samples, reduce
from neurecover.data.views.whitening import unwhiten
from neurecover.models import jacobian
from neurecover.statistics import Residuals

Layered = nr.Network | nr.DeepNetwork
FEW = CertificateOptions(max_parameters=20)


def network(sizes: tuple[int, ...], activation: str = "relu", seed: int = 0, affine: bool = False) -> Layered:
    """Return a network whose units are all on and off for a tenth of standard Gaussian inputs at least."""
    rng, X = np.random.default_rng(seed), np.random.default_rng(0).standard_normal((2_000, sizes[0]))
    while True:
        layers = [
            (1.4 * rng.standard_normal((o, i)) / i**0.5, 0.2 * rng.standard_normal(o)) for i, o in pairwise(sizes)
        ]
        C = rng.standard_normal((sizes[-1], sizes[0])) if affine else None
        made = nr.DeepNetwork(layers, activation, C=C)
        if all(0.1 < on < 0.9 for Z in made.preactivations(X) for on in (Z > 0.0).mean(axis=0)):
            return made if len(layers) > 2 else nr.Network(*layers[0], *layers[1], activation, C=C)


def case_of(
    truth: Layered, X: np.ndarray | Source, Y: np.ndarray | None = None, options: CertificateOptions | None = None
) -> Case:
    """Return a network as the case of samples that are its own answers, or others."""
    rng = np.random.default_rng(2)
    source = X if isinstance(X, Source) else ArraySource(X, truth(X) if Y is None else Y)
    given = prepare_samples(source, True, rng)
    M, mean = given.whitening.matrix, given.whitening.mean
    white = unwhiten(truth, Whitening(-mean @ M, np.linalg.inv(M)))
    holdout = reduce(given.holdout, Residuals(white, truth.n_outputs, 2, given.output_mean))
    evidence = Evidence(truth.n_hidden, agreements=1)
    options = options or CertificateOptions()
    return Case(white, given.whitening, given.samples, holdout, evidence, rng, options=options)


def named(certificate: nr.Certificate, name: str) -> nr.Check:
    return next(check for check in certificate.checks if check.name == name)


@pytest.mark.parametrize("sizes", [(4, 3, 1), (5, 4, 3, 1)])
def test_outputs_are_judged_by_their_own_digits(sizes: tuple[int, ...]) -> None:
    """Nobody has told the certificate what digits there are."""
    truth, X = network(sizes), np.random.default_rng(1).standard_normal((2_000, sizes[0]))
    rounded = certify(case_of(truth, X, truth(X).round(2)))
    assert named(rounded, "output digits").sentence == "The outputs carry 2 decimals."
    noisy = truth(X) + 0.01 * np.random.default_rng(3).standard_normal((2_000, 1))
    assert "double precision" in named(certify(case_of(truth, X, noisy)), "output digits").sentence


def test_the_lowest_of_several_layers_is_judged_by_the_digits_of_the_outputs() -> None:
    rng = np.random.default_rng(0)
    W, X = np.linalg.qr(rng.standard_normal((4, 4)))[0][:3], rng.standard_normal((3_000, 4))
    rng = np.random.default_rng(2)
    V = rng.uniform(0.5, 1.5, (3, 3)) * rng.choice([-1.0, 1.0], (3, 3)) / np.sqrt(3.0)
    a = rng.uniform(0.5, 1.5, 3)
    Y = (np.maximum(np.maximum(X @ W.T - 1.0, 0.0) @ V.T + rng.uniform(0.05, 0.4, 3), 0.0) @ a).round(3)
    found = nr.recover_lowest_layer(X, Y, 3, upper="network", n_upper=3, random_state=0)
    digits = [check for check in found.certificate.checks if check.name == "output digits"]
    assert digits
    assert not any("double precision" in check.sentence for check in digits)


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("sizes", [(4, 3, 1), (5, 4, 3, 1)])
def test_streams_and_weights_of_every_depth(
    sizes: tuple[int, ...], weight: str | None, noise: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same verdict and errors as of the same rows in memory, and the errors of noise of variance 1/w."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    truth, rng, n = network(sizes), np.random.default_rng(0), 6_000
    X = rng.standard_normal((n, sizes[0]))
    w = np.exp(X[:, 0])  # so that F is another one with weights
    y = truth(X)[:, 0] + noise * rng.standard_normal(n) / np.sqrt(w)
    names = [f"x{i}" for i in range(sizes[0])]
    pq.write_table(pa.table(dict(zip(names, X.T)) | {"y": y, "w": w}), tmp_path / "rows.parquet", row_group_size=2_000)
    held = case_of(truth, ArraySource(X, y[:, None], weight=None if weight is None else w))
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 50_000)
    source = nr.open(tmp_path / "rows.parquet", inputs=names, outputs=["y"], weight=weight)
    assert source.base.streams
    streamed = case_of(truth, source)
    assert certify(streamed).verdict == certify(held).verdict == ("statistical" if noise else "exact")
    for name, errors in streamed.errors.arrays.items() if noise else ():
        np.testing.assert_allclose(errors, held.errors.arrays[name], rtol=0.1)
    if noise and weight:
        # The offset has no part in the free scales: its variance is σ² F⁻¹ by any generalised inverse of F = Σ w JᵀJ.
        J = jacobian(held.white, held.whitening.inputs(X))[:, 0]
        inverse = np.linalg.pinv(J.T @ (w[:, None] * J), rcond=1e-10, hermitian=True)
        expected = noise * np.sqrt(inverse[-1, -1])
        for case in (held, streamed):
            np.testing.assert_allclose(list(case.errors.arrays.values())[-1], expected, rtol=0.1)


@pytest.mark.parametrize(
    ("sizes", "activation", "affine"),
    [
        ((8, 8, 2), "gelu", False),
        ((8, 8, 2), "tanh", True),
        ((8, 8, 2), "exp", False),
        ((8, 8, 2), "relu", True),
        ((6, 6, 5, 1), "relu", False),
        ((6, 6, 5, 2), "tanh", False),
        ((6, 6, 5, 2), "relu", True),
        ((5, 5, 4, 4, 2), "leaky_relu", False),
    ],
)
def test_products_say_what_the_matrix_says(sizes: tuple[int, ...], activation: str, affine: bool) -> None:
    truth = network(sizes, activation, affine=affine)
    X = np.random.default_rng(1).standard_normal((2_000, sizes[0]))
    by_matrix, by_products = case_of(truth, X), case_of(truth, X, options=FEW)
    assert by_products.by_products
    assert not by_matrix.by_products
    assert certify(by_matrix).verdict == certify(by_products).verdict == "exact"
    assert by_products.n_free == by_matrix.n_free
    matrix, products = by_matrix.errors.arrays, by_products.errors.arrays
    ratio = np.concatenate([(products[name] / np.maximum(matrix[name], 1e-300)).ravel() for name in matrix])
    # Bounds from four draws: 2.4 times the errors on average, and below them for one weight in twenty.
    assert np.mean(ratio < 1.0) < 0.15
    assert 1.5 < np.median(ratio) < 3.0


@pytest.mark.parametrize("what", ["twin", "off", "column", "unread"])
@pytest.mark.parametrize(("sizes", "activation"), [((6, 6, 5, 2), "relu"), ((6, 6, 5, 2), "tanh"), ((8, 8, 2), "gelu")])
def test_products_see_what_is_not_determined(sizes: tuple[int, ...], activation: str, what: str) -> None:
    """The last hidden layer has two equal units, or one that never acts or is never read; or two inputs are one."""
    truth = network(sizes, activation)
    X = np.random.default_rng(1).standard_normal((2_000, sizes[0]))
    layers = [(W.copy(), b.copy()) for W, b in truth.layers]
    (W, b), (A, _) = layers[-2:]
    if what == "twin":
        W[1], b[1] = W[0], b[0]
    if what == "off":
        W[1], b[1] = 0.0, 0.0 if activation == "tanh" else -60.0
    if what == "unread":
        A[:, 1] = 0.0
    if what == "column":
        X[1:, 1] = 0.0
    certificate = certify(case_of(truth.with_layers(layers, None), X, options=FEW))
    assert certificate.verdict != "exact"
    assert "tested by products" in named(certificate, "size").sentence


def test_a_gelu_block_of_more_weights_than_a_matrix_takes_is_exact() -> None:
    """32-96-32, as a block of a transformer has it: 6,272 weights."""
    rng, (d, k) = np.random.default_rng(0), (32, 96)
    W, A = rng.standard_normal((k, d)) / d**0.5, rng.standard_normal((d, k)) / k**0.5
    truth = nr.Network(W, 0.1 * rng.standard_normal(k), A, 0.1 * rng.standard_normal(d), "gelu")
    assert truth.n_parameters > CertificateOptions().max_parameters
    X = rng.standard_normal((3_000, d))
    found = nr.recover(X, truth(X), k, activation="gelu", random_state=0)
    assert nr.compare(found.network, truth).weight_error < 1e-12
    assert found.certificate.verdict == "exact"
