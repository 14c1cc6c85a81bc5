"""Step 1 of [GP18, §2.1]: the units of y = upper(u(W x − t)) up to a small angle, from Hermite coefficients.

Above a high threshold f is close in mean to its linear part Σ cᵢ u(wᵢ·x − tᵢ) [GP18, Lemma 2], so that
Tⱼ = E[f Heⱼ(x)] ≈ Σᵢ cᵢ hⱼ(−tᵢ) wᵢ^{⊗j}. Several degrees of one variable only change the weights [GP18, B.7]. The
paths "one_by_one" and "simultaneous" find the wᵢ by landscape design from T₂ and T₄; "tensor" decomposes T₂ and T₃
directly, whose weights are larger: for ReLU units h₄ vanishes at t = 1 and for step units at t = √3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial, sqrt

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.gp18.landscape.objectives import one_by_one, simultaneous
from neurecover.data import Source, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.statistics import HermiteSums, regression_degree
from neurecover.tensors import best_weights, decompose, span, unpack, whitened

# The orders of the coefficients that each path reads.
PATHS = {"tensor": (2, 3), "one_by_one": (2, 4), "simultaneous": (2, 4)}


@dataclass(frozen=True)
class Directions:
    """Unit rows W (k, d), up to sign, and the weights cᵢ hⱼ(−tᵢ) (p, k) of every order in the coefficients."""

    W: np.ndarray
    weights: dict[int, np.ndarray]

    def signed(self, activation: Activation) -> Directions:
        """Return the directions with the sign of every unit.

        The second weight cᵢ h₂(−tᵢ) does not see the sign of a row and the third does, so the sign of their product is
        that of h₂ h₃ at the thresholds where the unit is rarely active, whatever the sign of cᵢ. The sides on which
        outputs vary more tell far less: products of other units vary there too.
        """
        # From a threshold of 2 on h₂ and h₃ of step, ReLU and sigmoid units keep their signs.
        h = activation.hermite(-2.0, 3)
        size = np.maximum(np.sum(self.weights[2] ** 2, axis=1, keepdims=True), 1e-300)  # outputs count alike
        seen = np.sum(self.weights[2] * self.weights[3] / size, axis=0) * float(h[2] * h[3])
        signs = np.where(seen < 0.0, -1.0, 1.0)
        return Directions(self.W * signs[:, None], {j: a * signs**j for j, a in self.weights.items()})


def hermite_coefficients(
    source: Source, n_samples: int, degree: int, regress: int | None = None
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Return packed T₁ … T_degree (p, n_packed) and their standard errors (p,) in one pass, regressed if n allows."""
    d = source.n_inputs
    q = regression_degree(n_samples, d, degree) if regress is None else regress
    found = reduce(source, HermiteSums(d, source.n_outputs, degree, q)).coefficients()
    error = np.sqrt(found.residual_variance / max(found.freedom, 1))
    return {j: found.packed(j) for j in range(1, degree + 1)}, error


def directions(
    coefficients: Mapping[int, np.ndarray],
    d: int,
    rng: np.random.Generator,
    *,
    n_hidden: int | None = None,
    standard_error: float | np.ndarray = 0.0,
    path: str = "tensor",
) -> Directions:
    """Find the units from packed Hermite coefficients Tⱼ (p, n_packed), exact or estimated; p = 1 for landscapes.

    n_hidden=None takes the rank of the coefficients above their noise, which is right for k ≤ d independent units.
    """
    if path not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)}. Got {path!r} instead.")
    if n_hidden is not None and not 1 <= n_hidden <= d:
        raise ValueError(f"The moments show at most as many units as inputs, {d}. Got n_hidden={n_hidden} instead.")
    orders = PATHS[path]
    used = {j: np.atleast_2d(coefficients[j]) for j in orders}
    basis = span(used, d, standard_error, rank=n_hidden).basis
    k = basis.shape[1]
    if k == 0:
        raise UnsolvableError("The Hermite coefficients of the outputs do not rise above their noise.")
    unit = np.maximum(np.broadcast_to(standard_error, len(used[2])), 1e-300) if np.any(standard_error) else np.ones(1)
    reduced = {j: np.stack([whitened(row, basis, j) for row in used[j]]) / unit[:, None] for j in orders}
    if path == "tensor":
        W = decompose({j: T / sqrt(factorial(j)) for j, T in reduced.items()}, k, k, rng).W
    else:
        W = _landscape(unpack(reduced[2][0], k, 2), reduced[4][0], rng, path)
    W = W @ basis.T
    return Directions(W, {j: best_weights(T, W, j) for j, T in coefficients.items()})


def thresholds(found: Directions, activation: Activation) -> np.ndarray:
    """Return tᵢ from the ratio of third to second weight, h₃(−t)/h₂(−t): t for ReLU units, (t² − 1)/t for step units.

    The ratio of a sigmoid unit changes little with t, so that its threshold is rough at best.
    """
    grid = np.linspace(0.05, 5.0, 1_000)  # no unit with a larger threshold is active often enough to be seen
    h = activation.hermite(-grid, 3)
    ratio = h[3] / h[2]
    second, third = found.weights[2], found.weights[3]
    seen = np.abs(np.sum(second * third, axis=0)) / np.maximum(np.sum(second**2, axis=0), 1e-300)
    return grid[np.argmin(np.abs(ratio[None, :] - seen[:, None]), axis=1)]


def _landscape(second: np.ndarray, fourth: np.ndarray, rng: np.random.Generator, path: str) -> np.ndarray:
    """Return the directions of the best of several minimisations: with estimated moments G(Z) may have a minimum with
    two equal rows.
    """
    if path == "one_by_one":
        return one_by_one(second, fourth, rng)
    refusal = ""
    for _ in range(10):
        try:
            return simultaneous(second, fourth, rng)
        except UnsolvableError as reason:
            refusal = str(reason)
    raise UnsolvableError(refusal)
