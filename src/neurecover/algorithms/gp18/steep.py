"""The search of [GP18, §3] for directions along which f changes abruptly: no linear or monotone part needed.

For x ~ N(0, I), step units and unit z,

    −E[f(x) δ′(z·x − s)] = d/ds (φ(s) E[f | z·x = s])
                         = φ′(s) E[f | z·x = s] + Σᵢ cot αᵢ φ(z·x = s, wᵢ·x = tᵢ) E[∂P/∂Xᵢ | …]

[GP18, Claim 4, whose |cot| is cot], which grows without bound as z → wᵢ at s = tᵢ and is bounded away from all units.
For ReLU units δ″ takes the place of δ′ [GP18, C.1], and for any function that is a power on either side of 0 the
derivative of δ of the order at which it jumps; smooth units have none. δ is a Gaussian kernel of width ε here, so the
correlation is smooth in (z, s) and is climbed by its gradient; narrower kernels sharpen it. With the polynomials He_j

    (−1)ʲ δ_ε⁽ʲ⁾(v) = He_j(v/ε) φ(v/ε) / ε^{j+1}.

The number of starts grows exponentially with the dimension. Beyond `max_inputs` of them the search therefore takes
place in the span of the units, which the first three Hermite coefficients show, and its last climbs in all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover import activations
from neurecover.activations import Activation, SidedPower
from neurecover.activations.quadrature import hermite_polynomials
from neurecover.algorithms.base import BEST, Algorithm, Call
from neurecover.algorithms.gp18.common import refuse_unless
from neurecover.algorithms.gp18.layers.upper import with_linear_upper
from neurecover.algorithms.gp18.options import STEEP, SteepOptions
from neurecover.data import ArraySource, Source, reduce, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.statistics import HermiteSums, regression_degree
from neurecover.statistics.moments.hermite import hermite_features, n_features, root_factorials
from neurecover.tensors import span

_SCANNED = 32  # directions at a time


@dataclass(frozen=True)
class SteepDirections:
    """Unit rows W (m, d), thresholds (m,) and the correlations (m,) of the maxima, strongest first."""

    W: np.ndarray
    threshold: np.ndarray
    strength: np.ndarray


def correlation(
    z: np.ndarray, s: float, X: np.ndarray, f: np.ndarray, eps: float, order: int
) -> tuple[float, np.ndarray, float]:
    """Return (−1)ʲ E[f δ_ε⁽ʲ⁾(z·x − s)], j the order, with its derivatives in z (d,) and s."""
    u = (X @ z - s) / eps
    bell = f * np.exp(-0.5 * u * u) / (np.sqrt(2.0 * np.pi) * eps ** (order + 1))
    He = hermite_polynomials(u, order + 1)
    weighted = -bell * He[order + 1] / (eps * len(f))
    return float(np.mean(bell * He[order])), weighted @ X, -float(weighted.sum())


def jump_order(activation: Activation) -> int | None:
    """Return the order of the first derivative of act that has a δ, from 1 for a step; None if act is smooth at 0."""
    if not isinstance(activation, SidedPower) or not activation.exponent.is_integer():
        return None
    c = int(activation.exponent)
    smooth = activation.left == (-1.0) ** c
    return None if smooth or c + 1 > len(STEEP.widths) else c + 1


def gradient_search(
    source: Source,
    activation: str | Activation,
    n_hidden: int,
    rng: np.random.Generator,
    options: SteepOptions = STEEP,
) -> SteepDirections:
    """Return the n_hidden strongest local maxima of the correlation, from standard Gaussian inputs and one output."""
    act = activations.get(activation)
    why = _out_of_reach(act, source.n_inputs, n_hidden, options)
    if why is not None:
        raise ValueError(why)
    order = jump_order(act)
    assert order is not None
    X, Y = subsample(source, options.rows, int(rng.integers(2**31))).collect()
    shuffled = rng.permutation(len(X))  # the first of them are then a sample too
    inputs, Y = X[shuffled], Y[shuffled]
    basis = _units_span(inputs, Y[:, 0], options)
    X = inputs @ basis
    d = X.shape[1]
    Z = rng.standard_normal((60 * 2**d, d))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    found: list[_Maximum] = []
    for _ in range(options.rounds):
        f = _remainder(X, Y[:, 0], act, found)
        if not float(f @ f) > 1e-20 * float(Y[:, 0] @ Y[:, 0]):
            break
        new = _maxima(X, f, Z, order, found, 2 * n_hidden, options)
        found += new
        if not new or len(found) >= n_hidden:
            break
    if not found:
        raise UnsolvableError("The outputs change nowhere more abruptly than noise does, so no direction stands out.")
    found = sorted(found, key=lambda item: -abs(item.value))[:n_hidden]
    if d < source.n_inputs:
        found = _in_all_inputs(found, basis, inputs, _remainder(X, Y[:, 0], act, []), order, options)
    return SteepDirections(
        np.array([top.z for top in found]), np.array([top.s for top in found]), np.array([top.value for top in found])
    )


def _out_of_reach(activation: Activation, d: int, n_hidden: int, options: SteepOptions) -> str | None:
    if jump_order(activation) is None:
        return (
            "steep_directions looks for a jump of units or of their first derivative, as step, relu and abs have. "
            f"Got {activation} instead."
        )
    if min(d, n_hidden) > options.max_inputs:
        return (
            "The directions that steep_directions tries grow exponentially with inputs or units; up to "
            f"{options.max_inputs} of either are within reach. Got {d} inputs and {n_hidden} units instead."
        )
    return None


def _units_span(X: np.ndarray, y: np.ndarray, options: SteepOptions) -> np.ndarray:
    """Return an orthonormal basis (d, r) of the span of the units; of all inputs where these are few.

    Orders 1 and 2 come from a regression and order 3 is a mean over what that leaves: n (F₂² + F₃) multiply–adds, F_j
    the number of features up to degree j. One pass for all three would take the products of both, n F₂ F₃.
    """
    n, d = X.shape
    if d <= options.max_inputs:
        return np.eye(d)
    sums = HermiteSums(d, 1, 2, regression_degree(n, d, 2))
    low, F = reduce(ArraySource(X, y), sums).coefficients(), n_features(d, 2)
    third = np.zeros(n_features(d, 3) - F)
    for rows in np.array_split(np.arange(n), 1 + n * n_features(d, 3) // options.entries):
        features = hermite_features(X[rows], 3)
        third += features[F:] @ (y[rows] - low.values[0] @ features[:F]) / n
    tensors = {1: low.packed(1), 2: low.packed(2), 3: (third * root_factorials(d, 3))[None]}
    return span(tensors, d, np.sqrt(low.residual_variance / low.freedom), rank=options.max_inputs).basis


def _in_all_inputs(
    found: list[_Maximum], basis: np.ndarray, X: np.ndarray, f: np.ndarray, order: int, options: SteepOptions
) -> list[_Maximum]:
    """Climb further, along all inputs, from maxima within a span, because its basis has errors."""
    climbed = []
    for top in found:
        value, z, s = _climb(basis @ top.z, top.s, X, f, options.widths[order - 1][-1], order)
        climbed.append(_Maximum(value, z, s))
    return climbed


@dataclass(frozen=True)
class _Maximum:
    value: float
    z: np.ndarray
    s: float


def _maxima(
    X: np.ndarray,
    f: np.ndarray,
    Z: np.ndarray,
    order: int,
    known: list[_Maximum],
    wanted: int,
    options: SteepOptions,
) -> list[_Maximum]:
    """Find local maxima that noise does not explain, from the starts Z, strongest first; known ones are left out."""
    found: list[_Maximum] = []
    misses = 0
    coarse, widths = slice(0, options.coarse), options.widths[order - 1]
    for _, z, s in _scan(Z, X[coarse], f[coarse], widths[0], order):
        if len(found) >= wanted or misses >= options.patience:
            break
        if any(abs(z @ other.z) > options.near for other in (*known, *found)):
            continue
        for eps in widths[:-1]:
            _, z, s = _climb(z, s, X[coarse], f[coarse], eps, order)
        # A climb may end on a side lobe of the kernel, beside the unit: the strongest place along z is the unit itself.
        _, z, s = _scan(np.array([z, -z]), X, f, widths[-1], order)[0]
        value, z, s = _climb(z, s, X, f, widths[-1], order)
        if s < 0.0:
            z, s = -z, -s  # the same boundary, seen from the side of the origin
        seen = any(abs(z @ other.z) > options.apart for other in (*known, *found))
        if seen or not _abrupt(value, z, s, X, f, order, options):
            misses += 1
        else:
            found.append(_Maximum(value, z, s))
            misses = 0
    return found


def _abrupt(
    value: float, z: np.ndarray, s: float, X: np.ndarray, f: np.ndarray, order: int, options: SteepOptions
) -> bool:
    """Return whether the correlation at the narrowest width exceeds its noise and grows as the width shrinks.

    At a unit it grows like 1/ε; elsewhere it no longer changes once ε is below the scale on which f bends.
    """
    widths = options.widths[order - 1]
    if abs(value) < options.significant * _noise(z, s, X, f, widths[-1], order):
        return False
    return abs(value) > options.growth * widths[0] / widths[-1] * abs(correlation(z, s, X, f, widths[0], order)[0])


def _noise(z: np.ndarray, s: float, X: np.ndarray, f: np.ndarray, eps: float, order: int) -> float:
    """Return the standard error of the correlation."""
    u = (X @ z - s) / eps
    bell = f * np.exp(-0.5 * u * u) / (np.sqrt(2.0 * np.pi) * eps ** (order + 1))
    return float(np.sqrt(np.mean((bell * hermite_polynomials(u, order)[order]) ** 2) / len(f)))


def _remainder(X: np.ndarray, y: np.ndarray, activation: Activation, found: list[_Maximum]) -> np.ndarray:
    """Subtract from y its best polynomial of degree 4 and what the units found so far explain.

    A wide kernel takes the polynomial's bends for kinks. Units explain u(z·x − s) times 1, the inputs, one another.
    """
    features = hermite_features(X, 4)
    if found:
        H = activation(X @ np.array([top.z for top in found]).T - np.array([top.s for top in found])).T
        products = [H, *(h * X.T for h in H), *(H[i] * H[i + 1 :] for i in range(len(H) - 1))]
        features = np.concatenate([features, *products])
    gram = features @ features.T
    gram[np.diag_indices_from(gram)] *= 1.0 + 1e-10
    return y - np.linalg.solve(gram, features @ y) @ features


def _scan(Z: np.ndarray, X: np.ndarray, f: np.ndarray, eps: float, order: int) -> list[tuple[float, np.ndarray, float]]:
    """Return the largest |correlation| over s ≥ 0 for every row of Z, strongest first, on bins of a quarter width."""
    step, low, high = 0.25 * eps, -1.0, 4.0
    bins = int(np.ceil((high - low) / step))
    centres = low + (np.arange(bins) + 0.5) * step
    offsets = np.subtract.outer(np.arange(bins), np.arange(bins)) * 0.25  # in units of the width
    kernel = hermite_polynomials(offsets, order)[order] * np.exp(-0.5 * offsets**2) * (centres > 0.0)
    out = []
    for start in range(0, len(Z), _SCANNED):
        part = Z[start : start + _SCANNED]
        # One bin more on either side takes what lies beyond.
        place = np.clip(np.floor((X @ part.T - low) / step), -1.0, bins).astype(np.int64) + 1
        place += np.arange(len(part)) * (bins + 2)
        weights = np.broadcast_to(f[:, None], place.shape).ravel()
        sums = np.bincount(place.ravel(), weights, len(part) * (bins + 2)).reshape(len(part), bins + 2)[:, 1:-1]
        curves = np.abs(sums @ kernel)
        best = np.argmax(curves, axis=1)
        out += [(float(curve[i]), z, float(centres[i])) for curve, z, i in zip(curves, part, best)]
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
    return _out_of_reach(task.activation, task.n_inputs, task.n_hidden, STEEP) or refuse_unless(
        "steep_directions", task
    )


def _run(call: Call) -> Estimate:
    k = call.task.n_hidden
    assert k is not None
    act = call.task.activation
    found = gradient_search(call.source, act, k, call.rng, call.options_as(SteepOptions))
    weakest = float(np.abs(found.strength).min())
    note = f"{len(found.W)} of {k} directions were found; the weakest has a correlation of {weakest:.3g}."
    return Estimate(with_linear_upper(call.source, found.W, found.threshold, act), (note,), details=found)


ALGORITHM = Algorithm(
    name="steep_directions",
    paper="GP18, Section 3 and C.1",
    assumes=(
        f"Gaussian inputs, at most {STEEP.max_inputs} of them or of the units; units that jump or bend (step, relu, "
        "leaky_relu, abs) at any threshold; no linear part needed"
    ),
    refuse=_refuse,
    run=_run,
    options={BEST: SteepOptions},
    finds="composite",
)
