"""The search of [GP18, §3] for directions along which f changes abruptly: no linear or monotone part needed.

For x ~ N(0, I), step units and unit z,

    −E[f(x) δ′(z·x − s)] = d/ds (φ(s) E[f | z·x = s])
                         = φ′(s) E[f | z·x = s] + Σᵢ cot αᵢ φ(z·x = s, wᵢ·x = tᵢ) E[∂P/∂Xᵢ | …]

[GP18, Claim 4, whose |cot| is cot], which grows without bound as z → wᵢ at s = tᵢ and is bounded away from all units.
For ReLU units δ″ takes the place of δ′ [GP18, C.1]. δ is a Gaussian kernel of width ε here, so the correlation is
smooth in (z, s) and is climbed by its gradient; narrower kernels sharpen it. The number of starts grows exponentially
with d.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms.base import Algorithm, Call
from neurecover.algorithms.gp18.common import refuse_unless
from neurecover.algorithms.gp18.upper import with_linear_upper
from neurecover.data import Source, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.refine.task import Task
from neurecover.results import Estimate
from neurecover.statistics.hermite import hermite_features

WIDTHS = {1: (0.3, 0.15, 0.08), 2: (0.3, 0.2, 0.12)}  # the noise of δ″ grows like ε^−5/2, that of δ′ like ε^−3/2
_MAX_INPUTS = 6
_APART = 0.97  # |cos| above which two maxima are one
_NEAR = 0.9  # |cos| to a maximum above which a start leads to it
_PATIENCE = 12  # starts in a row that lead to maxima already known


@dataclass(frozen=True)
class SteepDirections:
    """Unit rows W (m, d), thresholds (m,) and the correlations (m,) of the maxima, strongest first."""

    W: np.ndarray
    threshold: np.ndarray
    strength: np.ndarray


def correlation(
    z: np.ndarray, s: float, X: np.ndarray, f: np.ndarray, eps: float, order: int
) -> tuple[float, np.ndarray, float]:
    """−E[f δ′_ε(z·x − s)] for order 1, E[f δ″_ε(z·x − s)] for order 2, with its derivatives in z (d,) and s."""
    u = (X @ z - s) / eps
    bell = np.exp(-0.5 * u * u) / (np.sqrt(2.0 * np.pi) * eps)
    if order == 1:
        kernel, slope = u / eps, (1.0 - u * u) / eps**2
    else:
        kernel, slope = (u * u - 1.0) / eps**2, (3.0 * u - u**3) / eps**3
    weighted = f * bell * slope / len(f)
    return float(np.mean(f * bell * kernel)), weighted @ X, -float(weighted.sum())


def gradient_search(
    source: Source,
    activation: str | Activation,
    n_hidden: int,
    rng: np.random.Generator,
    *,
    directions: int | None = None,
    max_samples: int = 100_000,
) -> SteepDirections:
    """The n_hidden strongest local maxima of the correlation, from standard Gaussian inputs and one output."""
    act = activations.get(activation)
    if act.name not in ("step", "relu"):
        raise ValueError(f"The search knows step and relu units. Got {act} instead.")
    d = source.n_inputs
    if d > _MAX_INPUTS:
        raise ValueError(
            f"The directions to try grow exponentially; up to {_MAX_INPUTS} inputs are within reach. Got {d} instead."
        )
    order = 1 if act.name == "step" else 2
    X, Y = subsample(source, max_samples, int(rng.integers(2**31))).collect()
    f = _detrended(X, Y[:, 0])
    if not float(f @ f) > 1e-20 * float(Y[:, 0] @ Y[:, 0]):
        raise UnsolvableError("The outputs are a polynomial of low degree, so they change nowhere abruptly.")
    Z = rng.standard_normal((directions or 60 * 2**d, d))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    starts = _scan(Z, X, f, WIDTHS[order][0], order)
    found: list[tuple[float, np.ndarray, float]] = []
    misses = 0
    for _, z, s in starts:
        if len(found) >= 2 * n_hidden or misses >= _PATIENCE:
            break
        if any(abs(z @ other) > _NEAR for _, other, _ in found):
            continue
        value = 0.0
        for eps in WIDTHS[order]:
            value, z, s = _climb(z, s, X, f, eps, order)
        if s < 0.0:
            z, s = -z, -s  # the same boundary, seen from the side of the origin
        if any(abs(z @ other) > _APART for _, other, _ in found):
            misses += 1
        else:
            found.append((value, z, s))
            misses = 0
    found.sort(key=lambda item: -abs(item[0]))
    found = found[:n_hidden]
    return SteepDirections(
        np.array([z for _, z, _ in found]), np.array([s for _, _, s in found]), np.array([v for v, _, _ in found])
    )


def _detrended(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y less its best polynomial of degree 4, whose bends a wide kernel would take for kinks."""
    features = hermite_features(X, 4)
    return y - np.linalg.solve(features @ features.T, features @ y) @ features


def _scan(Z: np.ndarray, X: np.ndarray, f: np.ndarray, eps: float, order: int) -> list[tuple[float, np.ndarray, float]]:
    """The largest |correlation| over s ≥ 0 for every row of Z, strongest first; binned to a quarter of the width."""
    edges = np.arange(-1.0, 4.0, 0.25 * eps)
    centres = 0.5 * (edges[1:] + edges[:-1])
    offsets = np.arange(-16, 17) * 0.25
    bell = np.exp(-0.5 * offsets**2)
    kernel = (offsets if order == 1 else offsets**2 - 1.0) * bell
    out = []
    for z in Z:
        sums = np.histogram(X @ z, edges, weights=f)[0]
        curve = np.correlate(sums, kernel, mode="same") * (centres > 0.0)
        best = int(np.argmax(np.abs(curve)))
        out.append((float(abs(curve[best])), z, float(centres[best])))
    return sorted(out, key=lambda item: -item[0])


def _climb(
    z: np.ndarray, s: float, X: np.ndarray, f: np.ndarray, eps: float, order: int
) -> tuple[float, np.ndarray, float]:
    from scipy.optimize import minimize

    side = np.sign(correlation(z, s, X, f, eps, order)[0]) or 1.0

    def descent(v: np.ndarray) -> tuple[float, np.ndarray]:
        norm = float(np.linalg.norm(v[:-1]))
        unit = v[:-1] / norm
        value, dz, ds = correlation(unit, v[-1], X, f, eps, order)
        dz = (dz - (dz @ unit) * unit) / norm
        return -side * value, -side * np.append(dz, ds)

    result = minimize(descent, np.append(z, s), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    unit = result.x[:-1] / np.linalg.norm(result.x[:-1])
    return float(-side * result.fun), unit, float(result.x[-1])


def _refuse(task: Task) -> str | None:
    if task.n_hidden is None:
        return "steep_directions needs the number of units. Give n_hidden."
    if task.n_inputs > _MAX_INPUTS:
        return (
            f"steep_directions tries a number of directions that grows exponentially with the inputs, up to "
            f"{_MAX_INPUTS} of them. Got {task.n_inputs} instead."
        )
    return refuse_unless("steep_directions", task, ("step", "relu"))


def _run(call: Call) -> Estimate:
    k = call.task.n_hidden
    assert k is not None
    act = call.task.activation
    found = gradient_search(call.source, act, k, call.rng)
    weakest = float(np.abs(found.strength).min())
    note = f"{len(found.W)} directions of {k}, the weakest with a correlation of {weakest:.3g}."
    return Estimate(with_linear_upper(call.source, found.W, found.threshold, act), (note,), details=found)


ALGORITHM = Algorithm(
    name="steep_directions",
    paper="GP18, Section 3 and C.1",
    assumes=f"Gaussian inputs, at most {_MAX_INPUTS}; step or relu units at any threshold; no linear part needed",
    refuse=_refuse,
    run=_run,
    finds="composite",
)
