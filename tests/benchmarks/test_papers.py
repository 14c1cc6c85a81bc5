"""The papers' open questions: derivatives against differences, tensors against the library's, pictures from tables."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from benchmarks import benchmarks
from benchmarks.papers import orders, spurious

RESULTS = Path(__file__).parents[2] / "docs" / "results"
NAMES = ["atv21-orders", "atv21-spurious", "atv21-rate", "bjw18-kappa", "gklw19-outputs", "gklw19-biases"]


@pytest.mark.parametrize("name", [*NAMES, "gp18-phase", "gp18-places"])
def test_a_picture_is_drawn_from_the_saved_table(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shutil.copy(RESULTS / f"{name}.csv", tmp_path)
    (path,) = benchmarks()[name].redraw(tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_risk_is_the_library_s_and_its_gradient_that_of_differences() -> None:
    rng = np.random.default_rng(0)
    risk = spurious.Risk(*spurious.draw_units(rng, 4, 0.5))
    V, h, alpha = spurious.draw_units(rng, 4, 0.7)
    at = np.concatenate([V.ravel(), h, alpha, [0.3]])
    value, gradient = risk(at)
    truth = nr.Network(risk.V, risk.h, risk.alpha[None])
    assert value == pytest.approx(nr.population_risk(nr.Network(V, h, alpha[None], [0.3]), truth), rel=1e-9)
    size = 1e-5  # central differences: 1e-10 of the third derivative, and rounding of 1e-16 over it
    steps = size * np.eye(len(at))
    differences = [(risk(at + step)[0] - risk(at - step)[0]) / (2.0 * size) for step in steps]
    np.testing.assert_allclose(gradient, differences, atol=1e-7)


def test_tensors_have_their_inner_products_and_derivatives() -> None:
    """⟨T(w), T(v)⟩ = Σ_j h_j(b) h_j(c) (w·v)ʲ / j! for single units, and derivatives are those of differences."""
    rng = np.random.default_rng(1)
    tensors = orders.Tensors(3, 4)
    (W, b, a), (V, c, e) = (orders.draw_units(rng, 1, 3) for _ in range(2))
    inner = float(tensors.at(W, b, a)[0] @ tensors.at(V, c, e)[0])
    h, g = (orders.RELU.hermite(bias, 4)[:, 0] for bias in (b, c))
    factor, cosine = float(a[0] * e[0]), float(W[0] @ V[0])
    series = sum(h[j] * g[j] * cosine**j / np.prod(np.arange(1.0, j + 1)) for j in (2, 3, 4))
    assert inner == pytest.approx(factor * series, rel=1e-12)
    units = orders.draw_units(rng, 2, 3)
    slopes = tensors.at(*units)[1]
    flat = np.concatenate([part.ravel() for part in units])

    def values(v: np.ndarray) -> np.ndarray:
        return tensors.at(v[:6].reshape(2, 3), v[6:8], v[8:])[0]

    steps = 1e-5 * np.eye(10)
    differences = np.transpose([(values(flat + s) - values(flat - s)) / 2e-5 for s in steps])
    np.testing.assert_allclose(slopes, differences, atol=1e-8)
