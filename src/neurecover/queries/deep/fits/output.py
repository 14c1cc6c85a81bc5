"""The output layer, and the signs of the last hidden layer.

With the last hidden layer's rows known up to sign, z_j(x) = w_j·h + b_j,

    y = Σ_j a_j relu(s_j z_j) + c = Σ_j a_j |z_j|/2 + β·h + γ,    β = ½ Σ_j s_j a_j w_j + ρ,

is linear in (a, β, γ). If the fit to answers is exact, no unit is missing and no layer follows. The signs are linear in
β. The remainder ρ is the contribution of always-active units; without such units it is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.models.signs import nearest_subsets
from neurecover.queries.deep.cells import KnownLayers


@dataclass(frozen=True, eq=False)
class Output:
    """The whole network, the residual of the fit relative to the answers, and the number of always-active units.

    `rest` (k_m, p) is ρ, the slopes that the always-active units add in the values h of the layer below; `bare` is the
    network without these units.
    """

    network: DeepNetwork
    residual: float
    always_on: int
    rest: np.ndarray
    bare: DeepNetwork


def n_answers_needed(known: KnownLayers, n_units: int) -> int:
    """Return how many answers a fit needs so that it can be tested by them."""
    below = len(known.layers[-1][1]) if known.layers else known.n_inputs
    return int(2.5 * (n_units + below + 1)) + 30


def fit_output(
    known: KnownLayers,
    rows: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray,
    unseen: np.ndarray | None = None,
    exact: float | None = None,
) -> Output | None:
    """Return the network whose last hidden layer has the given rows (k, k_m + 1) up to sign; None if it is not exact.

    `exact` is the relative residual that may be left, by default that of rows measured to float64.

    Weights `unseen` (k, k_m + 1) are zero in the rows because the unit never changes where the one below is active. If
    it is always active there, they appear as a linear term in h_i and are computed from it.
    """
    options = known.options
    exact = options.exact if exact is None else exact
    unseen = np.zeros(rows.shape, dtype=bool) if unseen is None else unseen
    rows = rows / np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    W, b, k = rows[:, :-1], rows[:, -1], len(rows)
    H = known.hidden(X)
    Z = H @ W.T + b
    basis = np.column_stack([0.5 * np.abs(Z), H, np.ones(len(X))])
    solution, residual = _robust_fit(basis, Y, exact, options.reweightings)
    if not residual < exact:
        return None
    a, beta, gamma = solution[:k], solution[k:-1], solution[-1]
    if k == 0 and known.layers:
        # No unit above the known layers: they are all of the network.
        network = DeepNetwork([*known.layers, (beta.T, gamma)])
        return Output(network, residual, 0, np.zeros_like(beta), network)
    signs, rest = _solve_signs(W, a, beta, np.logical_not(unseen[:, :-1].any(axis=0)))
    c = gamma - 0.5 * (a * (signs * b)[:, None]).sum(axis=0)
    layer = (signs[:, None] * W, signs * b)
    for i in np.flatnonzero(unseen[:, :-1].any(axis=0)):
        # Inactive units add nothing where the one below is active: their weights stay unknown.
        active = np.mean(signs * Z[H[:, i] > 0.0] > 0.0, axis=0) > 0.5 if np.any(H[:, i] > 0.0) else np.zeros(k)
        own = unseen[:, i] & (active > 0.0)
        layer[0][own, i] = np.linalg.lstsq(a[own].T, rest[i], rcond=None)[0]
        rest[i] -= layer[0][own, i] @ a[own]
    bare = DeepNetwork([*known.layers, layer, (a.T, c)])
    if np.abs(rest).max(initial=0.0) < 10.0 * exact * np.abs(beta).max(initial=1e-300):
        return Output(bare, residual, 0, np.zeros_like(rest), bare)
    return _add_linear_part(bare, rest, residual, 1e-3 * exact)


def _robust_fit(basis: np.ndarray, Y: np.ndarray, exact: float, reweightings: int) -> tuple[np.ndarray, float]:
    """Return coefficients that are exact for most answers, and the largest relative residual among these.

    A missing unit that is always active, or inactive, except for a few answers leaves the others exact. The smallest
    sum of absolute residuals finds these: iterated least squares, weighted by the inverse residuals.
    """
    # Far answers are large and so is their rounding: weight every answer by its size.
    weight = 1.0 / answer_sizes(Y)
    basis, Y = weight[:, None] * basis, weight[:, None] * Y
    scale = np.linalg.norm(basis, axis=0)
    scale[scale == 0.0] = 1.0
    basis = basis / scale
    most = max(basis.shape[1] + 10, int(0.7 * len(Y)))
    solution = np.linalg.lstsq(basis, Y, rcond=1e-13)[0]
    left = np.abs(basis @ solution - Y).max(axis=1)
    if left.max() < exact:
        return solution / scale[:, None], float(np.sort(left)[:most].max())
    best, idle = 0, 0
    for _ in range(reweightings):
        left = np.abs(basis @ solution - Y).max(axis=1)
        good = int(np.count_nonzero(left < exact))
        idle = 0 if good > best else idle + 1
        best = max(best, good)
        # Answers on the rarer side of a unit are few, and come last.
        if good == len(Y) or (good >= most and idle > 5):
            break
        root = 1.0 / np.sqrt(left + max(1e-3 * float(np.median(left)), 1e-3 * exact))
        solution = np.linalg.lstsq(root[:, None] * basis, root[:, None] * Y, rcond=1e-13)[0]
    kept = np.argsort(np.abs(basis @ solution - Y).max(axis=1))[:most]
    solution = np.linalg.lstsq(basis[kept], Y[kept], rcond=1e-13)[0]
    left = np.abs(basis @ solution - Y).max(axis=1)
    good = left < exact
    if np.count_nonzero(good) >= most:
        solution = np.linalg.lstsq(basis[good], Y[good], rcond=1e-13)[0]
    return solution / scale[:, None], float(np.sort(left)[:most].max())


def answer_sizes(Y: np.ndarray) -> np.ndarray:
    """Return the size (n,) that the rounding of each answer (n, p) is relative to: its own plus a typical one.

    If most answers are zero, as of a network that is inactive in most places, the typical size is that of the others.
    """
    size = np.abs(Y).max(axis=1)
    return np.asarray(size + (np.median(size[size > 0.0]) if size.any() else 1.0))


def find_failures(network: DeepNetwork, X: np.ndarray, Y: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return a mask (n,) of the answers that the network does not reproduce within `allowed` (n,)."""
    return np.asarray(np.abs(network(X) - Y).max(axis=1) > allowed)


def _solve_signs(W: np.ndarray, a: np.ndarray, beta: np.ndarray, sure: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve ½ Σ s_j a_j w_j = β for the signs s, using the `sure` (k_m,) rows; return s and what is left of β, (k_m,
    p).

    All rows are used if the sure ones are too few.
    """
    k = len(W)
    terms = 0.5 * W[:, :, None] * a[:, None, :]
    if np.count_nonzero(sure) * beta.shape[1] < k:
        sure = np.ones_like(sure)
    columns, target = terms[:, sure].reshape(k, beta[sure].size).T, beta[sure].ravel()
    # s_j = 2 t_j − 1 for bits t_j.
    signs = 2.0 * nearest_subsets(2.0 * columns, target + columns.sum(axis=1), 1)[0] - 1.0
    return signs, beta - np.einsum("j,jip->ip", signs, terms)


def _add_linear_part(bare: DeepNetwork, rest: np.ndarray, residual: float, least: float) -> Output:
    """Add ρ·h as always-active units: h ≥ 0 allows relu(ρ⁺·h) − relu(ρ⁻·h), at most two units per output.

    Inputs may be negative; for them it is relu(ρ·x) − relu(−ρ·x). Parts below `least` of the largest are rounding.
    """
    *known, (W, b), (A, c) = bare.layers
    small = min(least, 1e-3) * np.abs(rest).max()
    extra, columns = [], []
    for output, rho in enumerate(rest.T):
        for sign in (1.0, -1.0):
            part = np.maximum(sign * rho, 0.0) if known else sign * rho
            if np.abs(part).max() > small:
                extra.append(part)
                columns.append(sign * np.eye(rest.shape[1])[output])
    W, b = np.vstack([W, *extra]), np.append(b, np.zeros(len(extra)))
    network = DeepNetwork([*known, (W, b), (np.hstack([A, np.array(columns).T]), c)])
    return Output(network, residual, len(extra), rest, bare)
