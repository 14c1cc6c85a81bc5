"""The choice of further regions to measure, until the least accurate weights are good enough.

A gradient in region r, with rounding σ_r, gives Σ_j D_rj A_j w_jᵀ (p, d). The errors of the w_j have the covariance

    Γ = (Σ_r M_rᵀ M_r / σ_r²)⁻¹,      M_r = (D_rj A_oj) (p, k),

the same for every component, and so ‖δw_j‖ is about √(d Γ_jj). The unit j with the largest error errs along u = Γ e_j;
the pattern that shows most of it activates the units with A_j u_j > 0 and no others. Its region is added, Γ is updated,
and so on until all units have the wanted accuracy.

Before that come regions that distinguish the inaccurate units: a chain in which each region differs from the one before
by a few of these units only, one per output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from neurecover.models import Network
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import draw_basis, measure_gradients
from neurecover.queries.box.regions import Regions
from neurecover.queries.shallow.centres import Centres, choose_clear_steps

# ρ is the largest of a dozen residuals, so the typical error of an answer is about half of it.
TYPICAL = 0.5
_UPDATES = 16  # of Γ before it is recomputed: each loses a little


def expected_errors(network: Network, regions: Regions) -> np.ndarray:
    """Return the expected ‖δw_j‖ (k,) of a fit to the regions, with rows of W of length one."""
    return _Information.of(network.normal_form(), regions).errors(network.n_inputs)


def add_regions(
    box: Box, network: Network, regions: Regions, accuracy: float, most: int, *, rng: np.random.Generator
) -> Regions:
    """Return the regions and up to `most` well-centred new ones, until every w_j is expected to be accurate."""
    network = network.normal_form()
    centres = Centres.around(box, network, rng)
    basis = draw_basis(rng, network.n_inputs)
    points, steps = _plan(box, network, regions, centres, basis, accuracy, most, rng)
    if not len(points):
        return regions
    return regions + Regions.from_gradients(measure_gradients(box, points, basis, steps, rng=rng, check=False))


def _plan(
    box: Box,
    network: Network,
    regions: Regions,
    centres: Centres,
    basis: np.ndarray,
    accuracy: float,
    most: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose points (n, d) and the steps (n, d) from them."""
    information = _Information.of(network, regions)
    points, steps = [np.zeros((0, network.n_inputs))], [np.zeros((0, network.n_inputs))]
    chain = _chain(centres, information.errors(network.n_inputs) > accuracy, network.n_outputs, rng)
    for number in range(most):
        error = information.errors(network.n_inputs)
        if error.max() <= accuracy:
            information = information.recompute()
            error = information.errors(network.n_inputs)
        worst = int(np.argmax(error))
        if error[worst] <= accuracy:
            break
        known = number < len(chain)
        point = (
            chain[[number]] if known else _most_informative_point(network, centres, information.covariance[:, worst])
        )
        step = choose_clear_steps(box, network, point, basis)
        sigma = box.noise(point, network(point))[0] * np.sqrt(2.0 * np.mean(step**-2.0))
        information = information.with_rows(_response(network, point)[0] / sigma)
        points.append(point)
        steps.append(step)
    return np.concatenate(points), np.concatenate(steps)


def _chain(centres: Centres, bad: np.ndarray, p: int, rng: np.random.Generator) -> np.ndarray:
    """Return points (n, d) of regions each of which activates p more of the `bad` units (k,) than the one before.

    Two neighbours differ by A_j w_jᵀ of p units only, so that n + 1 regions determine n p units. Return no points if
    patterns cannot be chosen.
    """
    units = np.flatnonzero(bad)
    if centres.inverse is None or not len(units):
        return np.zeros((0, centres.network.n_inputs))
    patterns = np.tile(rng.random(len(bad)) < 0.5, (-(-len(units) // p) + 1, 1))
    patterns[:, units] = np.arange(len(units)) // p < np.arange(len(patterns))[:, None]
    return centres.at(patterns)


def _most_informative_point(network: Network, centres: Centres, u: np.ndarray) -> np.ndarray:
    """Return the point (1, d) whose gradient would reveal an error along u (k,) best."""
    if centres.inverse is None:
        seen = np.linalg.norm(_response(network, centres.pool) @ u, axis=1)
        margin = np.abs(centres.pool @ network.W.T + network.b).min(axis=1)
        return centres.pool[[int(np.argmax(seen * margin))]]
    # With several outputs, use the combination of them in which the error is largest.
    combination = np.linalg.svd(network.A * u, full_matrices=False)[0][:, 0]
    weight = combination @ (network.A * u)
    sides = np.stack([weight > 0, weight < 0])
    return centres.at(sides[[int(np.argmax(np.abs(sides @ weight)))]])


def _response(network: Network, points: np.ndarray) -> np.ndarray:
    """Return the matrices M_r at the points, (n, p, k)."""
    slopes = network.activation.derivative(points @ network.W.T + network.b)
    return slopes[:, None, :] * network.A


@dataclass(frozen=True, eq=False)
class _Information:
    """Γ⁻¹ = RᵀR + Σ of the rows added since, and Γ by the Woodbury identity.

    Γ loses digits as it shrinks by many orders of magnitude, so it is recomputed from R now and then.
    """

    triangle: np.ndarray
    recent: tuple[np.ndarray, ...]
    covariance: np.ndarray

    @classmethod
    def of(cls, network: Network, regions: Regions) -> _Information:
        """Return the information about the network in gradients measured in these regions."""
        regions = regions.take(np.isfinite(regions.sigma))
        k = network.n_hidden
        rows = (_response(network, regions.points) / regions.sigma[:, None, None]).reshape(-1, k)
        # A bound on the uncertainty of a direction that no region shows.
        floor = 1e-12 * np.abs(rows).max(initial=1e-300)
        return cls(np.zeros((0, k)), (rows, floor * np.eye(k)), np.zeros((k, k))).recompute()

    def recompute(self) -> _Information:
        """Return the same information, with R and Γ computed afresh."""
        triangle = np.linalg.qr(np.vstack([self.triangle, *self.recent]))[1]
        inverse = solve_triangular(triangle, np.eye(len(triangle)), check_finite=False)
        return _Information(triangle, (), inverse @ inverse.T)

    def with_rows(self, rows: np.ndarray) -> _Information:
        """Return the information after further rows (p, k)."""
        seen = self.covariance @ rows.T
        gain = np.linalg.solve(np.eye(len(rows)) + rows @ seen, seen.T)
        added = _Information(self.triangle, (*self.recent, rows), self.covariance - seen @ gain)
        return added.recompute() if len(added.recent) >= _UPDATES else added

    def errors(self, d: int) -> np.ndarray:
        """Return the expected ‖δw_j‖ (k,)."""
        return TYPICAL * np.sqrt(d * np.maximum(np.diag(self.covariance), 0.0))
