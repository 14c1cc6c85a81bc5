"""Which regions to measure next, so that the worst weights become good enough.

A gradient in region r, with rounding σ_r, tells Σ_j D_rj A_j w_jᵀ (p, d). The errors of the w_j have the covariance

    Γ = (Σ_r M_rᵀ M_r / σ_r²)⁻¹,      M_r = (D_rj A_oj) (p, k),

the same for every component, and so ‖δw_j‖ is about √(d Γ_jj). The unit j with the largest one errs along u = Γ e_j;
the pattern of activity that shows most of it switches on the units with A_j u_j > 0 and no others. Its region is added,
Γ is brought up to date, and so on until all units are within the accuracy wanted.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Network
from neurecover.queries.box import Box
from neurecover.queries.centred import Centres, clear_steps
from neurecover.queries.gradients import measure_gradients, orthonormal_basis
from neurecover.queries.regions import Regions

# Rounding that is not independent from answer to answer adds up to more than Γ says.
_CAUTION = 0.5


def expected_errors(network: Network, regions: Regions) -> np.ndarray:
    """‖δw_j‖ (k,) to expect of a fit to the regions, with rows of W of length one."""
    covariance = _covariance(network.normal_form(), regions)
    return _CAUTION * np.sqrt(network.n_inputs * np.maximum(np.diag(covariance), 0.0))


def add_regions(
    box: Box, network: Network, regions: Regions, accuracy: float, most: int, *, rng: np.random.Generator
) -> Regions:
    """The regions and up to `most` more, well centred, until every w_j is expected to be accurate."""
    network = network.normal_form()
    centres = Centres.around(network, rng)
    basis = orthonormal_basis(rng, network.n_inputs)
    points, steps = _plan(box, network, regions, centres, basis, accuracy, most)
    if not len(points):
        return regions
    return regions + Regions.measured(measure_gradients(box, points, basis, steps, rng=rng, check=False))


def _plan(
    box: Box,
    network: Network,
    regions: Regions,
    centres: Centres,
    basis: np.ndarray,
    accuracy: float,
    most: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, d) and steps (n, d) from them."""
    covariance = _covariance(network, regions)
    points, steps = [np.zeros((0, network.n_inputs))], [np.zeros((0, network.n_inputs))]
    while len(points) <= most:
        error = _CAUTION * np.sqrt(network.n_inputs * np.maximum(np.diag(covariance), 0.0))
        worst = int(np.argmax(error)) if len(error) else 0
        if not len(error) or error[worst] <= accuracy:
            break
        point = _telling(network, centres, covariance[:, worst])
        step = clear_steps(network, point, basis)
        noise = box.noise(point, network(point))
        sigma = noise[0] * np.sqrt(2.0 * np.mean(step**-2.0))
        covariance = _updated(covariance, _shown(network, point)[0] / sigma)
        points.append(point)
        steps.append(step)
    return np.concatenate(points), np.concatenate(steps)


def _telling(network: Network, centres: Centres, u: np.ndarray) -> np.ndarray:
    """The point (1, d) whose gradient shows most of an error along u (k,)."""
    if centres.inverse is None:
        seen = np.linalg.norm(_shown(network, centres.pool) @ u, axis=1)
        margin = np.abs(centres.pool @ network.W.T + network.b).min(axis=1)
        return centres.pool[[int(np.argmax(seen * margin))]]
    # With several outputs, in the combination of them in which the error is largest.
    combination = np.linalg.svd(network.A * u, full_matrices=False)[0][:, 0]
    weight = combination @ (network.A * u)
    sides = np.stack([weight > 0, weight < 0])
    return centres.at(sides[[int(np.argmax(np.abs(sides @ weight)))]])


def _shown(network: Network, points: np.ndarray) -> np.ndarray:
    """M_r (n, p, k)."""
    slopes = network.activation.derivative(points @ network.W.T + network.b)
    return slopes[:, None, :] * network.A


def _covariance(network: Network, regions: Regions) -> np.ndarray:
    regions = regions.take(np.isfinite(regions.sigma))
    M = (_shown(network, regions.points) / regions.sigma[:, None, None]).reshape(-1, network.n_hidden)
    triangle = np.linalg.qr(M, mode="r")
    # A direction that no region shows is as uncertain as this, not infinitely so.
    floor = 1e-12 * np.abs(triangle).max(initial=1e-300)
    inverse = np.linalg.pinv(np.vstack([triangle, floor * np.eye(network.n_hidden)]))
    return inverse @ inverse.T


def _updated(covariance: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(Γ⁻¹ + rowsᵀ rows)⁻¹ by the Woodbury identity."""
    seen = covariance @ rows.T
    return covariance - seen @ np.linalg.solve(np.eye(len(rows)) + rows @ seen, seen.T)
