"""Three settings in which structure replaces the high threshold or the linear term [GP18, §4 and Appendix D].

Theorem 8: u(a) = e^{ρ(a − t)} with disjoint 0/1 weights. Inputs i ≠ j are correlated through f, E[f xᵢxⱼ], more
strongly within the support of one unit than across two; the graph of the strong correlations falls into one clique
per unit. (The paper's exponent −ρ|S|(t − ρd)/2 should read −ρ|S|(t − ρd/2): every unit contributes
e^{−ρt}·e^{ρ²d/2}.)

Theorem 9: u(a) = e^a with disjoint 0/1 weights and positive coefficients. g(z) = E[f(x) e^{z·x}] e^{−‖z‖²/2} = E[f(x
+ z)] is a positive sum of exponentials of Σ_{p∈S} z_p; it is convex, so that on the simplex {z ≥ 0, Σ z = R} its mass
gathers on one unit, and −γ‖z‖² spreads it evenly over that unit's inputs. (The paper subtracts λ‖z‖₁ instead; but g
outgrows it, so the maximum there is at infinity. λ is the multiplier of the constraint used here.)

Theorem 10: even u, orthonormal W, no threshold. On the sphere T₄(z, z, z, z) = Σ αᵢ(wᵢ·z)⁴ + Σ_{i<j} γᵢⱼ
(wᵢ·z)²(wⱼ·z)² has its local maxima at the wᵢ where γᵢⱼ < αᵢ + αⱼ. (The paper's βᵢ term vanishes: E[u(wᵢ·x) h₄(z·x)] =
û₄ (wᵢ·z)⁴ for unit z.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components

from neurecover.data import Source, reduce
from neurecover.statistics.base import Statistic
from neurecover.tensors.packing import checked, unpack


@dataclass(frozen=True)
class BinaryUnits:
    """Disjoint 0/1 weights W (k, d); `gap` is the ratio of the weakest used signal to the strongest unused one."""

    W: np.ndarray
    gap: float
    notes: tuple[str, ...]


def correlation_cliques(second: np.ndarray) -> BinaryUnits:
    """The units from E[f(x)(x xᵀ − I)] (d, d) [GP18, Alg. 3 and Theorem 8].

    The threshold on the correlations is put into their widest relative gap.
    """
    d = len(second)
    upper = np.triu_indices(d, 1)
    values = np.sort(np.abs(second[upper]))[::-1]
    if len(values) < 2 or values[0] == 0.0:
        return BinaryUnits(np.zeros((0, d)), 1.0, ("No two inputs are correlated through the outputs.",))
    floor = 1e-12 * values[0]
    ratios = (values[:-1] + floor) / (values[1:] + floor)
    best, notes = _widest_gap(np.abs(second), values, ratios)
    if best is None:
        return BinaryUnits(np.zeros((0, d)), float(ratios.max()), notes)
    threshold, gap = best
    return BinaryUnits(_cliques(np.abs(second), threshold)[0], gap, notes)


class TiltedMeans(Statistic):
    """Σ f(x) e^{z·x − ‖z‖²/2} and Σ of the same times x − z, for shifts Z (m, d): g(z) and ∇g(z)."""

    def __init__(self, Z: np.ndarray) -> None:
        self.Z = np.array(Z, dtype=float)
        self.settings = {"Z": self.Z}
        m, d = self.Z.shape
        self.sums = {"n": np.zeros((), dtype=np.int64), "value": np.zeros(m), "gradient": np.zeros((m, d))}
        self.row_bytes = 8 * (2 * m + d)

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X = np.asarray(X, dtype=np.float64)
        tilt = np.exp(X @ self.Z.T - 0.5 * np.sum(self.Z**2, axis=1)) * Y[:, :1]
        self.sums["n"] += len(X)
        self.sums["value"] += tilt.sum(axis=0)
        self.sums["gradient"] += tilt.T @ X - tilt.sum(axis=0)[:, None] * self.Z


def exponential_units(
    source: Source,
    rng: np.random.Generator,
    *,
    base: float = 0.6,
    radius: float = 1.25,
    spread: float = 0.1,
    steps: int = 40,
) -> BinaryUnits:
    """The units of f = P(e^{w₁·x}, …) with disjoint 0/1 weights and positive P [GP18, Theorem 9], one after the other.

    z is searched on −base·1 plus the simplex: the same sum of exponentials with smaller coefficients for products,
    estimated with far less variance, because e^{z·x} falls where f rises. radius is R, spread is γ relative to
    g(−base·1)/R². Every step is a pass over the samples. Inputs of a unit that was found are
    left out of the next search, which ends when no gradient is left above a tenth of the first.
    """
    d = source.n_inputs
    start = reduce(source, TiltedMeans(np.full((1, d), -base)))
    g0, first = float(start.average("value")[0]), start.average("gradient")[0]
    if not g0 > 0.0:
        raise ValueError(f"Theorem 9 needs outputs with a positive mean. Got {g0:.3g} instead.")
    free = np.ones(d, dtype=bool)
    rows, gaps = [], []
    while free.any() and first[free].max() > 0.1 * first.max():
        z, gradient = _simplex_maximum(source, free, rng, base, radius, spread * g0 / radius**2, steps)
        support = free & (z > 0.3 * z.max())
        rest = free & ~support
        if rest.any():
            gaps.append(float(gradient[support].min() / max(np.abs(gradient[rest]).max(), 1e-300)))
        rows.append(support.astype(float))
        free &= ~support
    gap = min(gaps, default=np.inf)
    notes = (f"{len(rows)} units; gradients inside a unit exceed those outside by a factor of {gap:.2f} or more.",)
    return BinaryUnits(np.array(rows).reshape(-1, d), gap, notes)


@dataclass(frozen=True)
class EvenUnits:
    """Orthonormal W (k, d), each row up to sign, with the values T₄(w, w, w, w) (k,)."""

    W: np.ndarray
    values: np.ndarray


def even_units(
    fourth: np.ndarray, d: int, n_hidden: int, rng: np.random.Generator, *, sign: float = 1.0, restarts: int = 10
) -> EvenUnits:
    """The k local maxima of sign·T₄(z, z, z, z) on the sphere, each in the complement of the others [GP18, Theorem 10].

    fourth is packed. sign is that of the activation's û₄. The climb is the power method with the shift that makes it
    monotone.
    """
    T = sign * unpack(checked(fourth, d, 4), d, 4)
    W = np.empty((0, d))
    for _ in range(n_hidden):
        tops = [_climb(T, W, rng) for _ in range(restarts)]
        W = np.concatenate([W, max(tops, key=lambda z: _quartic(T, z))[None]])
    # Without the others' complement, errors of one row do not reach the next.
    W = np.array([_climb_from(T, w) for w in W])
    values = np.array([_quartic(T, w) for w in W])
    return EvenUnits(W, sign * values)


def _widest_gap(
    strength: np.ndarray, values: np.ndarray, ratios: np.ndarray
) -> tuple[tuple[float, float] | None, tuple[str, ...]]:
    for place in np.argsort(ratios)[::-1][:20]:
        threshold = float(np.sqrt(values[place] * max(values[place + 1], 1e-300)))
        W, are_cliques = _cliques(strength, threshold)
        if are_cliques and len(W):
            gap = float(ratios[place])
            return (threshold, gap), (f"{len(W)} cliques; correlations inside exceed others by a factor of {gap:.2f}.",)
    return None, ("No threshold splits the correlations into cliques, so the weights are not disjoint 0/1 vectors.",)


def _cliques(strength: np.ndarray, threshold: float) -> tuple[np.ndarray, bool]:
    """The components with two inputs or more of the graph strength > threshold, and whether all are cliques."""
    graph = strength > threshold
    np.fill_diagonal(graph, True)
    _, label = connected_components(graph, directed=False)
    groups = label[:, None] == label[None, :]
    members = np.unique(label[groups.sum(axis=1) > 1])
    return (label[None, :] == members[:, None]).astype(float), bool(np.all(graph == groups))


def _simplex_maximum(
    source: Source, free: np.ndarray, rng: np.random.Generator, base: float, radius: float, gamma: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """A maximum of g(z − base·1) − γ‖z‖² on {z ≥ 0, Σz = R} over the free inputs, and ∇g there."""
    z = np.where(free, rng.uniform(0.5, 1.5, len(free)), 0.0)
    z *= radius / z.sum()
    gradient = np.zeros(len(free))
    for step in range(steps):
        gradient = reduce(source, TiltedMeans(z[None] - base)).average("gradient")[0]
        ascent = gradient - 2.0 * gamma * z
        size = np.abs(ascent[free]).max()
        new = z + 0.5 * radius / (1.0 + 0.2 * step) * np.where(free, ascent, 0.0) / max(size, 1e-300)
        new = np.where(free, new, -np.inf)
        new = _onto_simplex(new, radius)
        if np.abs(new - z).max() < 1e-3 * radius:
            break
        z = new
    return z, gradient


def _onto_simplex(v: np.ndarray, radius: float) -> np.ndarray:
    """The point of {z ≥ 0, Σz = R} nearest to v; entries of −∞ become 0."""
    ordered = np.sort(v[np.isfinite(v)])[::-1]
    excess = (np.cumsum(ordered) - radius) / np.arange(1, len(ordered) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(v - shift, 0.0)


def _climb(T: np.ndarray, W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A local maximum in the complement of the rows of W, from a random start."""
    d = T.shape[0]
    basis = np.linalg.svd(np.eye(d) - W.T @ W)[0][:, : d - len(W)]
    small = T
    for _ in range(4):
        small = np.tensordot(small, basis, axes=(0, 0))
    start = np.asarray(rng.standard_normal(basis.shape[1]))
    return basis @ _climb_from(small, start / float(np.linalg.norm(start)))


def _climb_from(T: np.ndarray, z: np.ndarray) -> np.ndarray:
    """z ← T(·, z, z, z) + s z, normalised; the shift s keeps T(z⁴) + s‖z‖⁴ convex along the way, so it only rises."""
    r = len(z)
    shift = 0.5 * float(np.linalg.norm(T.reshape(r * r, r * r), 2))
    for _ in range(2_000):
        image = np.tensordot(np.tensordot(T, z, 1), z, 1) @ z + shift * z
        image /= np.linalg.norm(image)
        if np.linalg.norm(image - z) < 1e-13:
            return image
        z = image
    return z


def _quartic(T: np.ndarray, z: np.ndarray) -> float:
    return float(np.tensordot(np.tensordot(T, z, 1), z, 1) @ z @ z)
