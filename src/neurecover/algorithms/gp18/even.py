"""Even units with orthonormal weights and no threshold [GP18, Theorem 10].

On the sphere T₄(z, z, z, z) = Σ αᵢ(wᵢ·z)⁴ + Σ_{i<j} γᵢⱼ (wᵢ·z)²(wⱼ·z)² has its local maxima at the wᵢ where
γᵢⱼ < αᵢ + αⱼ. (The paper's βᵢ term vanishes: E[u(wᵢ·x) h₄(z·x)] = û₄ (wᵢ·z)⁴ for unit z.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.algorithms.base import Algorithm, Call
from neurecover.algorithms.gp18.common import refuse_unless
from neurecover.algorithms.gp18.landscape.step_one import hermite_coefficients
from neurecover.algorithms.gp18.layers.upper import with_linear_upper
from neurecover.exceptions import UnsolvableError
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.tensors import span, unpack
from neurecover.tensors.packing import checked


@dataclass(frozen=True)
class EvenUnits:
    """Orthonormal W (k, d), each row up to sign, with the values T₄(w, w, w, w) (k,)."""

    W: np.ndarray
    values: np.ndarray


def even_units(
    fourth: np.ndarray, d: int, n_hidden: int, rng: np.random.Generator, *, sign: float = 1.0, restarts: int = 10
) -> EvenUnits:
    """Find the k local maxima of sign·T₄(z, z, z, z) on the sphere, each orthogonal to the others [GP18, Theorem 10].

    fourth is packed. sign is that of the activation's û₄. The climb is the power method with the shift that makes it
    monotone.
    """
    if not 1 <= n_hidden <= d:
        raise ValueError(f"Orthonormal units are at most as many as the inputs, {d}. Got n_hidden={n_hidden} instead.")
    T = sign * unpack(checked(fourth, d, 4), d, 4)
    W = np.empty((0, d))
    for _ in range(n_hidden):
        tops = [_climb(T, W, rng) for _ in range(restarts)]
        W = np.concatenate([W, max(tops, key=lambda z: _quartic(T, z))[None]])
    # Without the others' complement, errors of one row do not reach the next.
    W = np.array([_climb_from(T, w) for w in W])
    values = np.array([_quartic(T, w) for w in W])
    return EvenUnits(W, sign * values)


def _climb(T: np.ndarray, W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a local maximum in the complement of the rows of W, from a random start."""
    d = T.shape[0]
    basis = np.linalg.svd(np.eye(d) - W.T @ W)[0][:, : d - len(W)]
    small = T
    for _ in range(4):
        small = np.tensordot(small, basis, axes=(0, 0))
    start = np.asarray(rng.standard_normal(basis.shape[1]))
    return basis @ _climb_from(small, start / float(np.linalg.norm(start)))


def _climb_from(T: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Iterate z ← T(·, z, z, z) + s z, normalised; the shift s makes T(z⁴) + s‖z‖⁴ convex, so it only rises."""
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


def _refuse(task: Task) -> str | None:
    act = task.activation
    if act.reflection != (1.0, 0.0):
        return f"even is for activations with u(−z) = u(z), such as abs. Got {act} instead."
    if abs(float(act.hermite(0.0, 4)[4])) < 1e-12:
        return f"even needs an activation with a fourth Hermite coefficient. That of {act} is zero."
    return refuse_unless("even", task)


def _run(call: Call) -> Estimate:
    d, act = call.source.n_inputs, call.task.activation
    tensors, error = hermite_coefficients(call.source, call.task.n_samples, 4)
    k = call.task.n_hidden
    if k is None:
        k = span({j: tensors[j] for j in (2, 4)}, d, error).basis.shape[1]
    if k == 0:
        raise UnsolvableError("The even Hermite coefficients of the outputs do not rise above their noise.")
    found = even_units(tensors[4][0], d, k, call.rng, sign=float(np.sign(act.hermite(0.0, 4)[4])))
    cosines = np.abs(found.W @ found.W.T) - np.eye(k)
    note = f"{k} units; the largest cosine of two, 0 for orthonormal ones, is {cosines.max():.3f}."
    return Estimate(with_linear_upper(call.source, found.W, np.zeros(k), act), (note,), details=found)


ALGORITHM = Algorithm(
    name="even",
    paper="GP18, Theorem 10",
    assumes="Gaussian inputs; even activation, no thresholds; weights that are orthonormal once inputs are whitened",
    refuse=_refuse,
    run=_run,
    finds="composite",
)
