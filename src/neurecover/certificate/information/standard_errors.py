"""Standard errors of every weight in normal form, from the information matrix and the influence of single samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from neurecover.certificate.information.many_weights import ManyWeights
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.normal_form import ToNormalForm, by_name
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.certificate.verdict import ParameterArrays
from neurecover.data import Source, Whitening, reduce
from neurecover.models import Layered, Model, Network, parameters
from neurecover.solve import afford
from neurecover.statistics import Influence, InfluenceSums, OutputPrecision, ScoreSums, TurnedSides, sketch


@dataclass(frozen=True)
class Errors:
    """Standard errors by name, their variances, and H with a covariance proportional to H Hᵀ.

    `influence` has the sums from which they follow under noise. H is missing if the errors are bounds from draws.
    """

    arrays: ParameterArrays
    variances: np.ndarray
    half: np.ndarray | None
    influence: Influence | None

    def covariance(self, own: np.ndarray) -> np.ndarray:
        """Return σ² T F⁻¹ Tᵀ of the parameters `own`, scaled to their variances."""
        half = self._scaled(own)
        return half @ half.T

    @property
    def root(self) -> np.ndarray:
        """R of the covariance R Rᵀ of all parameters."""
        return self._scaled(np.arange(len(self.variances)))

    def at_least(self, variances: np.ndarray, normal: Model) -> Errors:
        """Return the errors with every variance raised to at least the given one."""
        variances = np.maximum(self.variances, variances)
        return replace(self, arrays=ParameterArrays(by_name(normal, np.sqrt(variances))), variances=variances)

    def _scaled(self, own: np.ndarray) -> np.ndarray:
        assert self.half is not None
        half = self.half[own]
        scale = np.sqrt(self.variances[own] / np.maximum(np.einsum("ij,ij->i", half, half), 1e-300))
        return np.asarray(half * scale[:, None])


def standard_errors(
    information: Information,
    normal: Model,
    whitening: Whitening,
    samples: Source,
    scores: ScoreSums | None,
    variance: float,
    noisy: bool,
    precision: OutputPrecision | None,
    options: CertificateOptions = DEFAULTS,
) -> Errors:
    """Return errors from σ² T F⁻¹ Tᵀ; under noise, with variances that hold even if noise differs between samples.

    Such variances come from `scores` if these were summed already. ±1.96 standard errors are 95 % intervals.
    """
    half = ToNormalForm(information.model, information.free, normal, whitening)(information.root)
    if noisy:
        afford(4.0 * len(half) ** 3)
        moves = half @ information.root.T
        influence = _influence(information, moves, samples, scores)
        # With a variance of ν degrees of freedom a deviation has Student's t: wider if few samples carry a weight.
        variances = influence.variances * (stdtrit(influence.carried_by, 0.975) / stdtrit(np.inf, 0.975)) ** 2
        variances = variances + _turned_sides(information, moves, samples, variance)
        variances = variances * shared_rounding(precision, variance, options)
        variances = _along_rows(normal, variances + _shared_rounding(information, moves, samples, scores, precision))
        # If one output is exact and another noisy, weights that the exact one determines still have rounding errors.
        variances = variances + (options.rounding * (1.0 + np.abs(parameters(normal)))) ** 2
    else:
        influence = None
        variances = variance * np.einsum("ij,ij->i", half, half)
    return Errors(ParameterArrays(by_name(normal, np.sqrt(variances))), variances, half, influence)


def shared_rounding(precision: OutputPrecision | None, variance: float, options: CertificateOptions) -> float:
    """Return how many times larger variances are than of independent noise, for outputs computed in a short float."""
    if precision is None or not precision.is_float.any():
        return 1.0
    rounding = min(1.0, float(precision.largest.max()) / variance)  # the part of the noise that it may be
    return 1.0 + (options.shared**2 - 1.0) * rounding


def drawn_errors(information: ManyWeights, normal: Model, whitening: Whitening, variance: float) -> Errors:
    """Return upper bounds on the errors due to rounding, from random draws of such errors."""
    moved = ToNormalForm(information.model, information.free, normal, whitening)(information.moves)
    variances = information.largest_errors(moved, variance)
    return Errors(ParameterArrays(by_name(normal, np.sqrt(variances))), variances, None, None)


def _influence(information: Information, moves: np.ndarray, samples: Source, scores: ScoreSums | None) -> Influence:
    if scores is None:
        sums = InfluenceSums(information.model, information.free, moves, sketch(information.root))
        equations, P = samples.count() * information.model.n_outputs, len(information.free)
        afford(2.0 * equations * P * sums.root.shape[1] + 2.0 * samples.count() * moves.size)
        return reduce(samples, sums).influence()
    afford(4.0 * len(moves) ** 3)
    white = information.model
    assert isinstance(white, Network)
    B = scores.covariance()
    n_inputs = (len(moves) - white.n_outputs) // white.n_hidden - 1 - white.n_outputs
    variances = np.einsum("ij,ij->i", moves @ B, moves)
    return scores.influence(variances, information.n_determinable, n_inputs)


def _turned_sides(information: Information, moves: np.ndarray, samples: Source, variance: float) -> np.ndarray | float:
    """Return the variances due to samples whose side of a kink is uncertain; negligible for a stream."""
    white = information.model
    if samples.base.streams or not TurnedSides.is_for(white):
        return 0.0
    assert isinstance(white, Layered)
    root = np.sqrt(variance) * sketch(information.root)
    return reduce(samples, TurnedSides(white, information.free, moves, root)).variances()


def _shared_rounding(
    information: Information,
    moves: np.ndarray,
    samples: Source,
    scores: ScoreSums | None,
    precision: OutputPrecision | None,
) -> np.ndarray | float:
    """Return (n₀ M e_c)² s²/12 for outputs on a grid of step s: in n₀ samples all units are off, and the output is c.

    These outputs are all rounded alike. Their residual is the same and may be zero, so their scores do not show this
    error. With an affine term C x the outputs differ even there, and nothing is added.
    """
    white = information.model
    shared = isinstance(white, Network) and white.C is None
    if precision is None or not shared or len(information.free) < white.n_parameters:
        return 0.0
    if scores is not None:
        off = float(scores.sums["off"])
    else:
        off = 0.0
        for X, _, weight in samples.weighted_blocks(65_536):
            mine = np.all(white.preactivations(np.asarray(X, dtype=np.float64))[0] <= 0.0, axis=1)
            off += np.count_nonzero(mine) if weight is None else weight[mine].sum()
    return (off * moves[:, -white.n_outputs :]) ** 2 @ precision.rounding**2


def _along_rows(normal: Model, variances: np.ndarray) -> np.ndarray:
    """Add the error along a row of norm one: an error e across the row changes it by ‖e‖²/2, a second-order effect.

    E[‖e‖⁴]/4 = ((tr C)² + 2 tr C²)/4 ≤ ¾ (tr C)² for Gaussian e of covariance C.
    """
    variances, start = variances.copy(), 0
    for W in normal.hidden_weights:
        own = variances[start : start + W.size].reshape(W.shape)
        variances[start : start + W.size] += (0.75 * W**2 * own.sum(axis=1, keepdims=True) ** 2).ravel()
        start += W.size + len(W)
    return variances
