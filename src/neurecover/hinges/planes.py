"""Hinge planes of several inputs: y = c + C x + Σⱼ aⱼ relu(wⱼ·x + bⱼ), found by `recover` with an affine term.

The errors are the first-order errors of least squares, in the directions that change the function (|wⱼ| = 1, so wⱼ
moves only orthogonally to itself), increased by the variance due to rows whose side of a plane is uncertain
(`statistics.TurnedSides`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import fdtrc

from neurecover.certificate import Check, Draws, ParameterArrays, draw_planes
from neurecover.data import ArraySource
from neurecover.hinges.checks.planes import further_plane_p_value
from neurecover.hinges.options import DEFAULTS
from neurecover.hinges.robust import pseudo_values
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline import recover
from neurecover.pipeline.robust import RobustOptions, clipped, far_rows, name_rows, outlier_check
from neurecover.random import as_generator
from neurecover.results import Recovery
from neurecover.statistics import TurnedSides

_SIGNIFICANT = 0.01  # p-value of a plane against the mean below which it predicts


@dataclass(frozen=True, eq=False)
class Planes:
    """The recovery (None for a plane without hinges), the network, its covariance over `names`, and BIC by number.

    `no_hinge` is the p-value of a plane without hinges. `rows` are the distinct inputs, the means of their outputs, the
    weights, and `within` Σ (y − ȳ)² inside them. `outliers` are the given rows far off the fit.
    """

    recovery: Recovery[Network | DeepNetwork] | None
    network: Network
    covariance: np.ndarray
    errors: ParameterArrays
    dof: float
    noise: float
    bic: tuple[float, ...]
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    within: float
    no_hinge: float
    outliers: np.ndarray

    def draws(self, rng: np.random.Generator) -> np.ndarray | None:
        """Draw the parameters (T, P) from the posterior; None without hinges, or if a plane lies at the edge of the
        data.
        """
        if self.network.n_hidden == 0 or self.noise <= 0.0:
            return None
        X, y, weight = self.rows
        drawn = draw_planes(self.network, X, y[:, None], weight, self.within, rng)
        return None if drawn is None else _in_order(drawn)


def fit_planes(
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    n_hinges: int | None,
    most: int,
    random_state: Any,
    loss: str = "squared",
) -> Planes:
    """Fit hinge planes to X (n, d) and y (n,); if their number is not given, find it by BIC.

    Numbers are tried upwards as long as the test of further planes rejects. With a robust loss the fit is least squares
    on pseudo-values (`pipeline.robust`), first of clipped outputs.
    """
    if loss == "squared":
        return _by_squares(X, y, weight, n_hinges, most, random_state)
    how = RobustOptions()
    found = _by_squares(X, clipped(y), weight, n_hinges, most, random_state)
    for _ in range(how.rounds):
        before = found.network(X)[:, 0]
        values = pseudo_values(y, before, found.network.n_parameters, loss)
        found = _by_squares(X, values.y, weight, n_hinges, most, random_state)
        if np.sqrt(np.mean((found.network(X)[:, 0] - before) ** 2)) <= how.settled * values.scale:
            break
    rows = np.flatnonzero(pseudo_values(y, found.network(X)[:, 0], found.network.n_parameters, loss).outliers)
    check = Check("outliers", True, len(rows), None, f"The loss is {loss}. {name_rows(rows)}")
    return replace(found, outliers=rows, recovery=_with_outliers(found.recovery, check))


def _by_squares(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, n_hinges: int | None, most: int, random_state: Any
) -> Planes:
    """Fit by least squares.

    Rows with equal inputs become one row, their mean, with the sum of their weights, so that repeated rows and weights
    agree. Rows keep the order of their first occurrence, which the tests of neighbouring rows use.
    """
    given = X, y
    weight = np.ones(len(X)) if weight is None else weight
    X, y, weight = X[weight > 0.0], y[weight > 0.0], weight[weight > 0.0]
    places, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places, group = places[order], np.argsort(order)[group.ravel()]
    total = np.bincount(group, weight)
    means = np.bincount(group, weight * y) / total
    within = float(weight @ (y - means[group]) ** 2)
    n = float(weight.sum())
    flat = _plane(places, means, total)
    tried: list[tuple[Recovery[Network | DeepNetwork] | None, Network]] = [(None, flat)]
    bic = [_bic(flat, places, means, total, within, n)]
    rows, tests = (places, means, total), as_generator(random_state, "no hinge")
    no_hinge = further_plane_p_value(*rows, _scaled_jacobian(flat, places), tests)
    for k in [n_hinges] if n_hinges else range(1, most + 1) if n_hinges is None else []:
        if k * (X.shape[1] + 1) + X.shape[1] + 1 >= len(places) - 5 or (n_hinges is None and bic[-1] == -np.inf):
            break
        if n_hinges is None and not _wants_more(tried[-1][1], rows, no_hinge, tests):
            break
        alike = bool(np.all(total == total[0]))
        found = recover(places, means, k, affine=True, random_state=random_state,
                        sample_weight=None if alike else total)  # fmt: skip
        network = found.network
        assert isinstance(network, Network)
        tried.append((found, network))
        bic.append(_bic(network, places, means, total, within, n))
        # Two opposite planes may show together and not alone, so one step up may be worse before the next is better.
        if n_hinges is None and k >= int(np.argmin(bic)) + 2:
            break
    chosen = len(tried) - 1 if n_hinges else int(np.argmin(bic))
    recovery, network = tried[chosen]
    J, arrays = _tangent(network, places)
    rss = float(total @ (means - network(places)[:, 0]) ** 2) + within
    dof = max(n - arrays.shape[1], 1.0)
    root = np.sqrt(total)[:, None]
    inverse = arrays @ np.linalg.pinv((root * J).T @ (root * J)) @ arrays.T
    covariance = _with_turned_sides(inverse, network, (places, means, total), rss / dof)
    errors = _unflatten(np.sqrt(np.maximum(np.diag(covariance), 0.0)), network)
    noise = float(np.sqrt(rss / dof))
    outliers = far_rows((given[1] - network(given[0])[:, 0])[:, None], network.n_parameters)
    if recovery is not None and recovery.certificate.verdict in ("approximate", "failed"):
        recovery = _with_outliers(recovery, outlier_check(network, ArraySource(given[0], given[1][:, None])))
    recovery = _as_good_as_a_plane(recovery, flat, (places, means, total), within, no_hinge)
    exact = chosen > 0 and bic[chosen] == -np.inf  # without noise any hinge is beyond doubt
    no_hinge = 0.0 if exact else no_hinge
    return Planes(recovery, network, covariance, errors, dof, noise, tuple(bic), rows, within, no_hinge, outliers)


def _as_good_as_a_plane(
    recovery: Recovery[Network | DeepNetwork] | None,
    flat: Network,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    within: float,
    no_hinge: float,
) -> Recovery[Network | DeepNetwork] | None:
    """Return a failed recovery as approximate if it explains held-out variance, and the plane `flat` is significant.

    As with one input, a hinge that was told and is not seen beside a plane does not make the plane useless.
    """
    if recovery is None or recovery.certificate.verdict != "failed":
        return recovery
    (X, y, w), d = rows, flat.n_inputs
    left = float(w @ (y - flat(X)[:, 0]) ** 2) + within
    gain = float(w @ (y - np.average(y, weights=w)) ** 2) + within - left
    freedom = max(float(w.sum()) - d - 1.0, 1.0)
    made = next(check for check in recovery.certificate.checks if check.name == "prediction")
    if (made.figure or 0.0) <= 0.0 or fdtrc(d, freedom, gain / d / (left / freedom)) > _SIGNIFICANT:
        return recovery
    sentence = f"A plane without hinges predicts as well (p = {no_hinge:.3g})."
    check = Check("prediction", True, made.figure, made.limit, sentence)
    checks = tuple(check if one.name == "prediction" else one for one in recovery.certificate.checks)
    return replace(recovery, certificate=replace(recovery.certificate, checks=checks))


def _wants_more(
    network: Network, rows: tuple[np.ndarray, np.ndarray, np.ndarray], no_hinge: float, rng: np.random.Generator
) -> bool:
    """Tell whether another hinge plane is worth a search: by the test of further ones, at the levels of one input."""
    if network.n_hidden == 0:
        return no_hinge <= DEFAULTS.level
    return further_plane_p_value(*rows, _scaled_jacobian(network, rows[0]), rng) <= DEFAULTS.admitted


def _scaled_jacobian(network: Network, X: np.ndarray) -> np.ndarray:
    """Return ∂y/∂θ at X (n, P), with centred inputs and columns scaled to unit length."""
    centre = X.mean(axis=0)
    J = _jacobian(Network(network.W, network.b + network.W @ centre, network.A, network.c), X - centre)
    sizes = np.linalg.norm(J, axis=0)
    return J / np.where(sizes > 0.0, sizes, 1.0)


def _with_outliers(
    recovery: Recovery[Network | DeepNetwork] | None, check: Check | None
) -> Recovery[Network | DeepNetwork] | None:
    """Return the recovery with this check of outlying rows in place of its own."""
    if recovery is None:
        return None
    others = tuple(one for one in recovery.certificate.checks if one.name != "outliers")
    checks = others if check is None else (*others, check)
    return replace(recovery, certificate=replace(recovery.certificate, checks=checks))


def parameter_names(network: Network, inputs: list[str]) -> list[str]:
    """Return the names of the parameters in the order of the covariance: affine part, then every hinge."""
    names = ["const", *inputs]
    for j in range(network.n_hidden):
        names += [f"change{j + 1}", *(f"w{j + 1}[{name}]" for name in inputs), f"b{j + 1}"]
    return names


def parameters(network: Network) -> np.ndarray:
    """Return the values of the parameters in the same order."""
    C = np.zeros((1, network.n_inputs)) if network.C is None else network.C
    parts = [network.c, C[0]]
    for j in range(network.n_hidden):
        parts += [network.A[0, j : j + 1], network.W[j], network.b[j : j + 1]]
    return np.concatenate(parts)


def _in_order(drawn: Draws) -> np.ndarray:
    """Return the parameters (T, P) of networks in the same order."""
    assert drawn.C is not None
    parts = [drawn.c, drawn.C[:, 0]]
    for j in range(drawn.W.shape[1]):
        parts += [drawn.A[:, 0, j : j + 1], drawn.W[:, j], drawn.b[:, j : j + 1]]
    return np.hstack(parts)


def prediction_errors(planes: Planes, X: np.ndarray) -> np.ndarray:
    """Return the standard errors (n,) of the predictions at X."""
    J = _jacobian(planes.network, X)
    return np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", J, planes.covariance, J), 0.0))


def _plane(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> Network:
    d, root = X.shape[1], np.sqrt(w)
    centre = X.mean(axis=0)
    beta = np.linalg.lstsq(root[:, None] * np.column_stack([np.ones(len(X)), X - centre]), root * y, rcond=None)[0]
    offset = np.array([beta[0] - beta[1:] @ centre])
    return Network(np.zeros((0, d)), np.zeros(0), np.zeros((1, 0)), offset, C=beta[None, 1:])


def _bic(network: Network, X: np.ndarray, y: np.ndarray, w: np.ndarray, within: float, n: float) -> float:
    rss = float(w @ (y - network(X)[:, 0]) ** 2) + within
    size = n * (8.0 * np.finfo(float).eps * (float(np.abs(y).max(initial=0.0)) + np.finfo(float).tiny)) ** 2
    d = X.shape[1]
    # A plane's place is sought over the whole space, which counts like one parameter more than it has.
    count = d + 1 + network.n_hidden * (d + 2)
    return -np.inf if rss <= size else n * float(np.log(rss / n)) + float(np.log(n)) * count


def _with_turned_sides(
    inverse: np.ndarray, network: Network, rows: tuple[np.ndarray, np.ndarray, np.ndarray], variance: float
) -> np.ndarray:
    """Return the covariance σ² F⁺ of the parameters, plus the variance due to rows of uncertain side of a plane."""
    d, k = network.n_inputs, network.n_hidden
    if k == 0 or variance <= 0.0:
        return inverse * variance
    own = d + 1 + (d + 2) * np.arange(k)[:, None]  # the places of (a_j, w_j, b_j)
    order = np.concatenate([(own + 1 + np.arange(d)).ravel(), own[:, 0] + d + 1])  # those of W and b
    values, vectors = np.linalg.eigh(inverse)
    half = vectors * np.sqrt(np.maximum(values, 0.0) * variance)
    free = np.arange(len(order))
    sums = TurnedSides(network, free, inverse[:, order], half[order])
    sums.update(rows[0], rows[1][:, None], rows[2])
    first = np.maximum(np.diag(inverse) * variance, np.finfo(float).tiny)
    scale = np.sqrt(1.0 + sums.variances() / first)
    return np.asarray(inverse * variance * scale * scale[:, None])


def _jacobian(network: Network, X: np.ndarray) -> np.ndarray:
    """Return ∂y/∂θ for θ in the order of `parameters`, (n, P)."""
    columns = [np.ones((len(X), 1)), X]
    Z = X @ network.W.T + network.b
    for j in range(network.n_hidden):
        on = network.A[0, j] * (Z[:, j : j + 1] > 0.0)
        columns += [np.maximum(Z[:, j : j + 1], 0.0), on * X, on]
    return np.hstack(columns)


def _tangent(network: Network, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Jacobian in free directions, (n, F), and those directions (P, F)."""
    d, k = network.n_inputs, network.n_hidden
    blocks = [np.eye(d + 1)]
    for j in range(k):
        _, _, rows = np.linalg.svd(network.W[j : j + 1])
        block = np.zeros((d + 2, d + 1))
        block[0, 0], block[-1, -1], block[1:-1, 1:-1] = 1.0, 1.0, rows[1:].T
        blocks.append(block)
    free = np.zeros((sum(len(block) for block in blocks), sum(block.shape[1] for block in blocks)))
    i = j = 0
    for block in blocks:
        free[i : i + len(block), j : j + block.shape[1]] = block
        i, j = i + len(block), j + block.shape[1]
    return _jacobian(network, X) @ free, free


def _unflatten(errors: np.ndarray, network: Network) -> ParameterArrays:
    d, k = network.n_inputs, network.n_hidden
    own = errors[d + 1 :].reshape(k, d + 2)
    return ParameterArrays({"W": own[:, 1:-1], "b": own[:, -1], "A": own[None, :, 0], "c": errors[:1],
                            "C": errors[None, 1 : d + 1]})  # fmt: skip
