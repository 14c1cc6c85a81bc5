"""A network to be certified: the model, the samples, what the search knows, and all values that checks use.

Every value is computed at first use and then kept. With one hidden layer, the information matrix F is formed from sums
whose size does not grow with the number of outputs; otherwise from the Jacobian. If there are too many weights for the
matrix, only its products with vectors are used. Everything else is the same for every depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neurecover.certificate.determined.rare_columns import seldom
from neurecover.certificate.determined.seldom_on import exact_part, others_may_turn
from neurecover.certificate.determined.weights import Seen
from neurecover.certificate.evidence import Evidence, LeftOut
from neurecover.certificate.information.drawn import Drawn, largest_distance
from neurecover.certificate.information.many_weights import ManyWeights, by_products, can_be_tested
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.normal_form import aligned, hidden_names, signs_are_convention
from neurecover.certificate.information.sole_equations import sole_equations
from neurecover.certificate.information.standard_errors import Errors, drawn_errors, shared_rounding, standard_errors
from neurecover.certificate.options import DEFAULTS, EPS, CertificateOptions
from neurecover.certificate.residuals.constancy import constancy_test
from neurecover.certificate.residuals.corners import corner_test
from neurecover.certificate.residuals.nested import Nested, nested_tests
from neurecover.certificate.residuals.probes import probe_test
from neurecover.certificate.residuals.resolution import Visible, visible_unit
from neurecover.certificate.residuals.shapes import shape_test
from neurecover.certificate.residuals.tested import Tested, without_shared_rounding
from neurecover.certificate.sides import Sides
from neurecover.certificate.signs.exchange import least_apart
from neurecover.certificate.signs.planes import NearestPlanes, nearest_planes
from neurecover.certificate.signs.rivals import SignChoices, rivals_of_layers
from neurecover.certificate.sums import Sums
from neurecover.data import Mapped, Source, Whitening
from neurecover.data.views.weights import Unweighted, without_weights
from neurecover.models import (
    Composite,
    DeepNetwork,
    Layered,
    Model,
    Network,
    Polynomial,
    are_biases,
    parameters,
    term_sizes,
)
from neurecover.statistics import Influence, OutputPrecision, Residuals, SerialResiduals, weights_per_unit


@dataclass(frozen=True, eq=False)
class Case:
    """A network on whitened inputs that was fitted to all `samples`.

    `holdout` are the residuals on held-out samples, of the network before these samples joined the fit. bias=False says
    that biases and offset are fixed at zero. `distinct` has every sample once, None if there are no copies.
    """

    model: Model
    whitening: Whitening
    samples: Source
    holdout: Residuals
    evidence: Evidence
    rng: np.random.Generator
    bias: bool = True
    options: CertificateOptions = DEFAULTS
    distinct: Source | None = None

    @cached_property
    def size(self) -> np.ndarray:
        """The size of the terms that are summed to an output, (p,); a rounding error is relative to it.

        Inputs with a large mean lose digits when they are whitened, in proportion to their size.
        """
        X, _ = next(self.samples.blocks(self.options.term_samples))
        terms = term_sizes(self.model, np.asarray(X, dtype=np.float64))
        spread = 1.0 / np.maximum(np.linalg.norm(self.whitening.matrix, axis=1), 1e-300)
        offset = 1.0 + float(np.max(np.abs(self.whitening.mean) / spread, initial=0.0))
        return np.asarray(offset * np.sqrt(np.mean(terms**2, axis=0)))

    @property
    def rounding(self) -> np.ndarray:
        """The residual of every output that rounding explains, (p,)."""
        return self.options.rounding * self.size

    @cached_property
    def noisy(self) -> bool:
        """Whether the residual on held-out samples is larger than rounding explains."""
        return not bool(np.all(self.holdout.rms <= self.rounding))

    @property
    def n_units(self) -> int:
        return sum(len(W) for W in self.model.hidden_weights)

    @property
    def straight(self) -> bool:
        """Whether the number of units was to be found, and the result is a straight line without units."""
        return self.n_units == 0 and self.affine_term == "all" and self.evidence.asked is None

    @property
    def n_hidden(self) -> int | tuple[int, ...]:
        return self.model.n_hidden

    @property
    def n_inputs(self) -> int:
        return len(self.whitening.matrix)

    @property
    def rank(self) -> int:
        """The number of dimensions that the inputs span."""
        return self.whitening.rank

    @property
    def affine_term(self) -> str | None:
        """The affine part that the network's term C x can absorb: "all", that of the "inputs", or None without C.

        "no" for a composite, which cannot have such a term.
        """
        if isinstance(self.model, Composite):
            return "no"
        if self.model.C is None:
            return None
        return "all" if self.model.depth == 1 else "inputs"

    @property
    def activation(self) -> str:
        return str(self.model.activation)

    @property
    def differentiable(self) -> bool:
        """Whether the outputs have a derivative with respect to every parameter."""
        model = self.model
        known = not isinstance(model, Composite) or isinstance(model.upper, Polynomial | Network | DeepNetwork)
        return known and model.activation.differentiable

    @property
    def n_weights(self) -> int:
        """The number of free parameters."""
        fixed = 0 if self.bias else int(np.count_nonzero(are_biases(self.model)))
        return len(parameters(self.model)) - fixed

    @cached_property
    def by_products(self) -> bool:
        """Whether the information matrix is too large to be formed but can be tested by its products."""
        if self.noisy or self.n_weights <= self.options.max_parameters:
            return False
        return can_be_tested(self.model, self.samples, self.options.by_products)

    @cached_property
    def _aligned(self) -> tuple[Model, Model]:
        return aligned(self.model, self.whitening)

    @property
    def white(self) -> Model:
        """The network on whitened inputs with the scales and signs of its normal form."""
        return self._aligned[0]

    @property
    def normal(self) -> Model:
        """The normal form on the inputs."""
        return self._aligned[1]

    @property
    def convention(self) -> bool:
        """Whether the signs of units are a convention because an affine term absorbs their change."""
        return signs_are_convention(self.normal)

    @cached_property
    def raw(self) -> Source | None:
        """The inputs before whitening, if they fit in memory."""
        mapped = self.sums.counted.parent if isinstance(self.sums.counted, Unweighted) else self.sums.counted
        raw = mapped.parent if isinstance(mapped, Mapped) else None
        return without_weights(raw) if raw is not None and not raw.base.streams else None

    @cached_property
    def sums(self) -> Sums:
        """The samples that count, and all sums over them."""
        # Under noise every row is an observation. Without noise a copy adds no information, and weights do not matter.
        exact = self.samples if self.distinct is None else self.distinct
        counted = self.samples if self.noisy else without_weights(exact)
        return Sums(self.white, counted, self.noisy, self.bias, self.by_products, self.rng, self.options)

    @property
    def rows(self) -> Source:
        """The samples that are not at a kink; under noise all samples."""
        return self.sums.rows

    @property
    def sides(self) -> Sides:
        """The numbers of distinct inputs on either side of every unit's kink."""
        return self.sums.sides

    @property
    def serial(self) -> SerialResiduals:
        """The sums of the residuals of the fit, and of products of successive residuals."""
        return self.sums.serial

    @property
    def precision(self) -> OutputPrecision:
        """The digits of the outputs."""
        return self.evidence.precision or self.sums.precision

    @cached_property
    def information(self) -> Information | ManyWeights:
        """The information, from its sums or, if there are too many weights for a matrix, by its products."""
        if self.by_products:
            assert not isinstance(self.white, Composite)
            return by_products(self.white, self.bias, self.rows, self.options)
        return Information.of(self.sums.curvature)

    @property
    def weakest(self) -> float:
        """A lower bound on the smallest eigenvalue of the information."""
        return self.information.weakest

    @property
    def n_samples(self) -> int:
        return self.serial.n

    @property
    def n_equations(self) -> int:
        return self.serial.n * self.model.n_outputs

    @property
    def n_free(self) -> int:
        """The number of parameters that samples can determine: all except the free scales."""
        return self.information.n_determinable

    @cached_property
    def n_alone(self) -> int:
        """The equations that no other equation could contradict."""
        information = self.information
        if isinstance(information, ManyWeights):
            return information.n_alone
        return len(sole_equations(information.model, information.free, information.root, self.rows, self.options))

    @property
    def variance(self) -> float:
        """The variance of the residual, per remaining degree of freedom."""
        return float(self.serial.sums["squared"].sum()) / max(self.n_equations - self.n_free, 1)

    @property
    def _level(self) -> float:
        """The variance, but at least that of rounding."""
        return max(self.variance, (EPS * float(self.size.max())) ** 2)

    @cached_property
    def errors(self) -> Errors:
        """The standard errors of every weight in normal form, no smaller than in draws from the posterior."""
        return self.first_errors if self.drawn is None else self.drawn.errors

    @cached_property
    def drawn(self) -> Drawn | None:
        """Draws from the posterior and their errors, where errors to first order may be too small; else None."""
        draws, normal = self.evidence.draws, self.normal
        if draws is None or not self.noisy or not isinstance(normal, Network):
            return None
        return Drawn.of(draws.on_inputs(self.whitening), self.first_errors, normal)

    @cached_property
    def to_others(self) -> float:
        """The largest distance of a weight, in standard errors, to other optima that fit as well.

        Infinite if errors are small: separate optima then speak for another law. Softplus has two, beside its bend.
        """
        nearby, normal = self.evidence.nearby, self.normal
        known = self.drawn is not None and len(nearby) > 1 and self.widest > self.options.wide
        if not known or not isinstance(normal, Network):
            return np.inf
        return largest_distance(nearby, normal, self.whitening, self.errors.arrays)

    @cached_property
    def first_errors(self) -> Errors:
        """The standard errors to first order."""
        if isinstance(self.information, ManyWeights):
            return drawn_errors(self.information, self.normal, self.whitening, self._level)
        return standard_errors(
            self.information,
            self.normal,
            self.whitening,
            self.rows,
            self.sums.scores,
            self._level,
            self.noisy,
            self.precision if self.noisy else None,
            self.options,
        )

    @property
    def largest_error(self) -> float:
        """The largest error of a hidden unit's weight or bias, of an upper coefficient, or without units of a slope."""
        return self.errors.arrays.largest(*(("C",) if self.straight else self._hidden))

    @property
    def widest(self) -> float:
        """The largest error of a weight of a unit row."""
        return self.errors.arrays.largest(*(name for name in self._hidden if name.startswith("W")))

    @property
    def _hidden(self) -> tuple[str, ...]:
        normal = self.normal
        if not isinstance(normal, Composite):
            return hidden_names(normal)
        upper = normal.upper
        above = tuple(f"upper_{name}" for name in hidden_names(upper)) if isinstance(upper, Layered) else ()
        return ("W", "threshold", *above, *(("coefficients",) if isinstance(upper, Polynomial) else ()))

    @cached_property
    def unseen_terms(self) -> dict[str, int] | None:
        """The terms of an upper polynomial that too few samples show, with the number of samples; None without one.

        Only samples in which all units of a term are on show it; they have as many unknowns as these units have terms.
        """
        white = self.white
        if not isinstance(white, Composite) or not isinstance(white.upper, Polynomial):
            return None
        used = white.upper.exponents > 0
        supports, own, shared = np.unique(used, axis=0, return_inverse=True, return_counts=True)
        seen = np.zeros(len(supports), dtype=int)
        for X, _ in self.rows.blocks(65_536):
            off = white.hidden(np.asarray(X, dtype=np.float64)) == 0.0
            seen += np.count_nonzero(~(off.astype(float) @ supports.T.astype(float)).astype(bool), axis=0)
        few = seen < shared + self.options.margin
        return {white.upper.name_of(m): int(seen[own[m]]) for m in np.flatnonzero(few[own]).tolist()}

    @cached_property
    def strength(self) -> np.ndarray:
        """The output weights of every unit of the last hidden layer, or polynomial terms, divided by their errors."""
        errors = self.errors.arrays
        name = "coefficients" if "coefficients" in errors else [name for name in errors if not name.endswith("C")][-2]
        spread = np.linalg.norm(errors[name], axis=0)
        return np.asarray(np.linalg.norm(self.normal.to_arrays()[name], axis=0) / np.maximum(spread, 1e-300))

    @cached_property
    def rare(self) -> np.ndarray | None:
        """A mask (k, d) of the first layer's weights that too few rows show; None if this is not counted."""
        if self.raw is None or isinstance(self.normal, Composite):
            return None
        return seldom(self.normal, self.raw, self.options.few if self.noisy else 1, self.options)

    @cached_property
    def few(self) -> np.ndarray:
        """A mask of the units with too few samples on one side of their kink to determine their weights."""
        few, normal = self.sides.few, self.normal
        shallow = isinstance(normal, Network) and normal.C is None
        if self.noisy or self.raw is None or not shallow or not self.sides.one_seldom_off:
            return few
        assert isinstance(normal, Network)
        return few & others_may_turn(normal, int(np.argmax(few)), self.raw, self.options)

    @cached_property
    def open(self) -> Seen | None:
        """The weights that are exact although others are not determined, without noise; None if there are none."""
        normal, raw, sides, options = self.normal, self.raw, self.sides, self.options
        if raw is None or isinstance(normal, Composite) or least_apart(normal, None, raw, options) <= options.apart:
            return None
        level = float(np.sqrt(self._level))
        return exact_part(normal, raw, self.bias, level, self.few, sides.off < sides.needed, sides.needed, options)

    @cached_property
    def sign_choices(self) -> SignChoices:
        """The choices of signs that the covariance of the weights does not exclude [ATV21, eq. 5], layer by layer."""
        if self.convention:
            return SignChoices(1, convention=True)
        errors = self.errors
        covariance = None if errors.half is None else errors.covariance
        layers = rivals_of_layers(self.normal, errors.variances, covariance, self.options)
        return SignChoices.of(layers, max(self.evidence.sign_choices, 1))

    @cached_property
    def nearest_planes(self) -> NearestPlanes:
        """The two units whose planes are nearest."""
        return nearest_planes(self.normal, self.errors.arrays, self.options.same)

    @cached_property
    def exchange(self) -> float:
        """The distance, in standard errors, of the nearest two units that could exchange weights; inf without such."""
        if self.raw is None or isinstance(self.normal, Composite):
            return np.inf
        return least_apart(self.normal, self.errors.arrays, self.raw, self.options)

    @property
    def influence(self) -> Influence:
        assert self.errors.influence is not None
        return self.errors.influence

    @property
    def carried_by(self) -> float:
        """The smallest number of residuals on which the error of a weight depends."""
        return float(self.influence.carried_by.min(initial=np.inf))

    @cached_property
    def left_out(self) -> LeftOut:
        influence = self.influence
        return LeftOut(influence.left_out / self.model.n_outputs, influence.freedom, influence.n)

    @cached_property
    def output_variance(self) -> np.ndarray:
        """The weighted variance of every output, (p,); for a stream, of its held-out samples."""
        if self.samples.base.streams:
            return self.holdout.output_variance
        Y, weight = self.samples.collect()[1], self.samples.weights()
        return np.asarray(np.average((Y - np.average(Y, axis=0, weights=weight)) ** 2, axis=0, weights=weight))

    @cached_property
    def tested(self) -> Tested:
        """The rows on which residuals are tested: of those that share one rounding error, only the first."""
        assert isinstance(self.information, Information)
        every = Tested(self.rows, self.information, float(self.serial.sums["squared"].sum()), self.n_equations)
        rows = without_shared_rounding(self.rows, self.white) if any(self.precision.names) else self.rows
        if rows is self.rows:
            return every
        found = Tested.of(rows, self.sums.blank_curvature())
        return found if found.information.weakest >= self.options.singular else every

    @cached_property
    def p_structure(self) -> float:
        """The p-value of the residual's correlation with random units."""
        assert self.sums.probes is not None
        rows, information = self.tested.rows, self.tested.information
        return probe_test(information, self.variance, self.sums.probes, rows, self.options.significance)

    @cached_property
    def nested(self) -> tuple[Nested, ...]:
        """The tests against named larger models."""
        alternatives = self.sums.alternatives
        if alternatives is None or not isinstance(self.information, Information):
            return ()
        own, shared = self.tested, shared_rounding(self.precision, self.variance, self.options)
        return nested_tests(own.information, alternatives, own.rss, own.n_equations, own.rows, shared)

    @cached_property
    def shape(self) -> tuple[float, str] | None:
        """The p-value of the most significant shape, and the shape; None for streams, to save two passes."""
        if self.rows.base.streams:
            return None
        own = self.tested
        return shape_test(own.information, self.whitening, own.rows, self.rng, self.options.shape_work)

    @cached_property
    def p_corners(self) -> float | None:
        """The p-value of the residuals' signs near the kinks; None if this is not tested."""
        white = self.white
        if isinstance(white, Composite) or white.activation.homogeneity != 1.0 or self.rows.base.streams:
            return None
        return corner_test(white, self.tested.rows, self.options.corners)

    @cached_property
    def bends(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Σ (A_j z_j)²/σ² on the weaker side of every kink of the last layer, and the units' numbers of weights."""
        white, bent = self.white, self.sides.bent
        if isinstance(white, Composite) or bent is None:
            return None
        A = white.layers[-1][0]
        gain = np.sum(A**2 / np.maximum(self.noise_per_output**2, 1e-300)[:, None], axis=0)
        k = A.shape[1]
        return bent[len(bent) - k :] * gain, weights_per_unit(white)[len(bent) - k :]

    @property
    def noise_per_output(self) -> np.ndarray:
        """The root mean square of the residual of every output, (p,)."""
        return np.sqrt(self.serial.sums["squared"] / self.serial.n)

    @property
    def variances(self) -> np.ndarray:
        """The variance of the residual of every output, (p,); their mean is `variance`."""
        squared = self.serial.sums["squared"]
        return np.asarray(self.variance * squared / max(float(squared.mean()), 1e-300))

    @property
    def serial_z(self) -> np.ndarray:
        """The correlation of successive residuals, (p,), standard normal under independence."""
        return self.serial.z()

    @cached_property
    def p_constancy(self) -> float | None:
        """The p-value of the hypothesis that the first and the later rows have the same weights; None for streams."""
        if self.rows.base.streams or not isinstance(self.information, Information):
            return None
        own, how = self.tested, self.options
        return constancy_test(own.information, self.bias, own.rows, own.n_equations, how.shape_work, how.significance)

    @property
    def mean_z(self) -> np.ndarray:
        """The mean residual divided by its standard error, (p,)."""
        return self.serial.mean_z()

    @property
    def visible(self) -> Visible:
        """The smallest further unit that would have been noticed on these samples."""
        serial = self.serial if self.noisy else None
        return visible_unit(self.white, self.sums.close, self.sides.needed, self.rounding, serial)
