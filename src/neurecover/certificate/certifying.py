"""The certificate of a network of any kind, from a few passes over the samples.

The information F is formed from sums that do not grow with the number of outputs where there is one hidden layer and no
affine term, and from the Jacobian otherwise; everything after that is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from neurecover.certificate import checks
from neurecover.certificate.alone import alone
from neurecover.certificate.away import NEAR, AwayFromKinks
from neurecover.certificate.checks import EPS, ROUNDING, Evidence
from neurecover.certificate.corners import corner_test
from neurecover.certificate.determined import MOST, seen_weights, signs_are_determined
from neurecover.certificate.exchange import exchange, least_apart
from neurecover.certificate.information import Information
from neurecover.certificate.many_weights import ManyWeights, by_products, can_be_tested
from neurecover.certificate.normal_form import aligned, hidden_names, signs_are_convention
from neurecover.certificate.open_weights import open_weights
from neurecover.certificate.rare_columns import seldom
from neurecover.certificate.resolution import WITHIN, shown
from neurecover.certificate.rivals import SignRivals, sign_rivals
from neurecover.certificate.seldom_on import others_may_turn, seen_of_others
from neurecover.certificate.shapes import shape_test
from neurecover.certificate.standard_errors import Errors, drawn_errors, standard_errors
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays, passed, verdict_of
from neurecover.data import Mapped, Source, Whitening, distinct_inputs, reduce
from neurecover.data.views.weights import Unweighted, without_weights
from neurecover.models import (
    Composite,
    DeepNetwork,
    Model,
    Network,
    Polynomial,
    are_biases,
    parameters,
    term_sizes,
)
from neurecover.statistics import (
    Influence,
    InformationSums,
    ProbeScores,
    Residuals,
    ScoreSums,
    SerialResiduals,
    Statistic,
    Together,
    UnitsOn,
    weights_per_unit,
)

N_PROBES = 40
IN_MEMORY = 512 * 2**20  # bytes of inputs up to which repeated ones are counted once
TWINS = 1e-7  # difference of weights that counts as none without noise
TWIN_PAIRS = 2**18  # weights of pairs of units that are compared at a time
TERM_SAMPLES = 4_000  # samples from which the size of the terms of a forward pass is taken


def certify(
    model: Model,
    whitening: Whitening,
    samples: Source,
    holdout: Residuals,
    evidence: Evidence,
    rng: np.random.Generator,
    bias: bool = True,
) -> Certificate:
    """The certificate of a network on whitened inputs that was fitted to all `samples`.

    `holdout` are the residuals, on samples that had no part in it, of the network as it was before the held-out ones
    joined the fit. bias=False says that biases and offset are fixed at zero.
    """
    size = _sizes(model, whitening, samples)
    made = [*checks.held_out(holdout, ROUNDING * size)]
    noisy = not made[0].passed
    many = not noisy and _is_large(model, bias) and isinstance(model, Network) and can_be_tested(model, samples)
    made += _structural(model, whitening, evidence, bias, many)
    if not passed(made, ("units", "size", "derivative")):
        return issue(tuple(made), holdout, holdout.n)
    white, normal = aligned(model, whitening)
    if not noisy:  # at the level of rounding all rows say the same, however much they count
        samples = without_weights(samples)
    everything, probes = samples, _probes(white, rng, bias) if noisy else None
    curvature = None if many else InformationSums.of(white, bias, probes)
    serial, near = SerialResiduals(white), 0.0 if noisy else NEAR
    scores, close = None, UnitsOn(white, WITHIN)
    if samples.base.streams and curvature is not None:  # all in one pass
        wanted: dict[str, Statistic] = {"curvature": curvature, "serial": serial, "close": close}
        wanted["on"] = UnitsOn(white, near)
        if noisy and isinstance(white, Network) and ScoreSums.is_for(white):
            wanted["scores"] = ScoreSums(white, bias)
        seen = reduce(samples, Together(**wanted))
        curvature, serial = seen.part("curvature", type(curvature)), seen.part("serial", SerialResiduals)
        on, close = _sides(white, seen.part("on", UnitsOn), bias), seen.part("close", UnitsOn)
        scores = seen.part("scores", ScoreSums) if "scores" in wanted else None
    else:
        on = _sides(white, reduce(distinct_inputs(samples, IN_MEMORY), UnitsOn(white, near)), bias)
    if on.at_kink:
        samples, serial = AwayFromKinks(samples, white), serial.blank()
        curvature = None if curvature is None else curvature.blank()
    if serial.n == 0:
        serial = reduce(samples, serial)
        curvature = None if curvature is None else reduce(samples, curvature)
    information = _information(white, curvature, samples, bias)
    n_equations, n_free = serial.n * model.n_outputs, information.n_determinable
    made.append(checks.equations(n_equations, n_free, serial.n))
    made.append(checks.information(information.weakest, *on.unseen(signs_are_convention(normal))))
    raw = _in_memory(everything)
    each = checks.FEW if noisy else 1
    rare = None if raw is None or isinstance(normal, Composite) else seldom(normal, raw, each)
    made.append(checks.columns(rare))
    few = on.few
    if not noisy and raw is not None and isinstance(normal, Network) and normal.C is None and on.steady:
        few = few & others_may_turn(normal, int(np.argmax(few)), raw)
    made.append(checks.kinks(few, np.minimum(on.on, on.off), on.wanted, serial.n))
    if not noisy and raw is not None and passed(made, ("equations", "information")):
        made.append(checks.contradicted(_n_alone(information, samples), n_equations))
    freedom = n_equations - n_free
    variance = float(serial.sums["squared"].sum()) / max(freedom, 1)
    floor = (EPS * float(size.max())) ** 2
    if not noisy and raw is not None and not passed(made, ("inputs", "equations", "information", "columns", "kinks")):
        return _partly(made, normal, raw, on, few, bias, float(np.sqrt(max(variance, floor))), holdout)
    if not passed(made, ("equations", "information")):
        made += [] if evidence.converged else [checks.convergence(False)]
        return issue(tuple(made), holdout, serial.n)
    if isinstance(information, ManyWeights):
        errors = drawn_errors(information, normal, whitening, max(variance, floor))
    else:
        errors = standard_errors(
            information, normal, whitening, samples, scores, max(variance, floor), noisy, evidence.precision
        )
    made.append(_signs(normal, errors, evidence))
    made.append(_twins(normal, errors.arrays))
    if raw is not None and isinstance(normal, Network) and (apart := least_apart(normal, errors.arrays, raw)) < np.inf:
        made.append(exchange(apart))
    if errors.influence is not None and isinstance(information, Information):
        p_structure = _structure(information, variance, probes, samples)
        made += checks.noise(
            holdout, _left_out(errors.influence, model.n_outputs), n_equations, freedom, p_structure, evidence
        )
        # Two further passes, which streams are spared: of them only the random probes ask what the residual follows.
        if not samples.base.streams:
            made += checks.shape(shape_test(information, whitening, samples, rng))
            if isinstance(white, Network) and white.activation.homogeneity == 1.0:
                made.append(checks.corners(corner_test(white, samples)))
        if isinstance(white, Network) and on.bent is not None:
            gain = np.sum(white.A**2 / np.maximum(serial.sums["squared"] / serial.n, 1e-300)[:, None], axis=0)
            made.append(checks.bends(on.bent * gain, weights_per_unit(white)))
        made.append(checks.independence(serial.z()))
        spread, noise = np.sqrt(holdout.output_variance), np.sqrt(serial.sums["squared"] / serial.n)
        made.append(checks.output_digits(evidence.precision, spread, noise))
        made += checks.precision(errors.arrays.largest(*_rows(normal)), _strength(normal, errors.arrays), serial.n)
        if verdict_of(tuple(made)) == "statistical":
            misfit = float(np.sqrt(variance * (n_free + checks.UNSEEN) / n_equations))
            largest = errors.arrays.largest(*_hidden(normal))
            made.append(checks.noise_level(variance, largest, misfit, bias, samples.weighted))
    else:
        made.append(checks.digits(errors.arrays.largest(*_hidden(normal))))
    if evidence.asked is None and verdict_of(tuple(made)) in ("exact", "statistical"):
        close = close if close.n else reduce(samples, close)
        limits = shown(white, close, on.wanted + checks.MARGIN, ROUNDING * size, serial if noisy else None)
        made.append(checks.found_width(limits, signs_are_convention(normal)))
    return issue(tuple(made), holdout, serial.n, variance, errors.arrays)


def _in_memory(samples: Source) -> Source | None:
    """The inputs as they are, where they fit in memory."""
    mapped = samples.parent if isinstance(samples, Unweighted) else samples
    raw = mapped.parent if isinstance(mapped, Mapped) else None
    return without_weights(raw) if raw is not None and not raw.base.streams else None


def _partly(
    made: list[Check],
    normal: Model,
    raw: Source,
    on: _Sides,
    few: np.ndarray,
    bias: bool,
    level: float,
    holdout: Residuals,
) -> Certificate:
    """The certificate of a network that fits to rounding without every weight being determined."""
    nothing = issue(tuple(made), holdout, raw.count())
    if isinstance(normal, Composite) or normal.activation.name == "exp" or normal.n_parameters > MOST:
        return nothing
    if not passed(made, ("prediction", "width", "affine part")):
        return nothing
    if isinstance(normal, Network) and least_apart(normal, None, raw) <= checks.APART:
        return nothing
    low, affine = few & (on.off < on.wanted + checks.MARGIN), normal.C is not None
    low = few if affine else low  # on or off, what too few samples tell from an affine function hides in C
    alone_rare = few.sum() == 1 < len(few) and (affine or not low.any())
    if isinstance(normal, Network) and normal.activation.name == "relu" and alone_rare:
        seen = seen_of_others(normal, raw, bias, level, few, int(np.max(on.wanted)) + checks.MARGIN)
        signs = True
    else:
        seen = seen_weights(normal, raw, bias, level, few, low)
        signs = signs_are_determined(normal, seen.errors)
    determined = np.concatenate([np.isfinite(error).ravel() for error in seen.errors.values()])
    # What failed a check without any weight being open for it is not vouched for weight by weight either.
    if determined.all() or not determined.any() or not signs:
        return nothing
    made = [*made, checks.open_part(open_weights(seen.errors, seen.unseen), int(np.count_nonzero(~determined)))]
    return replace(nothing, checks=tuple(made), standard_errors=ParameterArrays(seen.errors))


def issue(
    made: tuple[Check, ...],
    holdout: Residuals,
    n_samples: int,
    noise_variance: float | None = None,
    errors: ParameterArrays | None = None,
) -> Certificate:
    """The certificate of these checks; errors and noise are kept where the verdict vouches for them."""
    verdict = verdict_of(made)
    variance = {"exact": 0.0, "statistical": noise_variance}.get(verdict)
    kept = errors if verdict in ("exact", "statistical") else None
    return Certificate(made, holdout.mse, variance, n_samples, holdout.n, kept)


def certify_untested(model: Model, whitening: Whitening, samples: Source, holdout: Residuals) -> Certificate:
    """The certificate of a network that there was no time to test: what held-out samples say of it."""
    made = [*checks.held_out(holdout, ROUNDING * _sizes(model, whitening, samples))]
    made += [checks.units(sum(len(W) for W in model.hidden_weights)), checks.time_ended()]
    return issue(tuple(made), holdout, samples.count())


def certify_nothing(reason: str, holdout: Residuals, constant: bool, n_samples: int) -> Certificate:
    """The certificate of a constant in place of a network that was not to be had, and why it was not."""
    spread = float(holdout.output_variance.mean())
    r2 = 1.0 if constant else 1.0 - holdout.mse / spread if spread > 0.0 else 0.0
    predicts = f"The mean of the outputs explains {max(r2, 0.0):.1%} of the held-out variance."
    made = (Check("units", False, 0, 1, reason), Check("prediction", constant, r2, checks.GOOD_R2, predicts))
    return issue(made, holdout, n_samples)


def _sizes(model: Model, whitening: Whitening, samples: Source) -> np.ndarray:
    """The size of the terms whose sum an output is, (p,): what one rounding error is relative to.

    Inputs far from zero lose digits before they are whitened, by as many times as they are larger.
    """
    X, _ = next(samples.blocks(TERM_SAMPLES))
    terms = term_sizes(model, np.asarray(X, dtype=np.float64))
    spread = 1.0 / np.maximum(np.linalg.norm(whitening.matrix, axis=1), 1e-300)
    offset = 1.0 + float(np.max(np.abs(whitening.mean) / spread, initial=0.0))
    return offset * np.sqrt(np.mean(terms**2, axis=0))


def _n_free(model: Model, bias: bool) -> int:
    return len(parameters(model)) - (0 if bias else int(np.count_nonzero(are_biases(model))))


def _is_large(model: Model, bias: bool) -> bool:
    return _n_free(model, bias) > checks.MAX_PARAMETERS


def _n_alone(information: Information | ManyWeights, samples: Source) -> int:
    if isinstance(information, ManyWeights):
        return information.n_alone
    return len(alone(information.model, information.free, information.root, samples))


def _structural(model: Model, whitening: Whitening, evidence: Evidence, bias: bool, many: bool) -> list[Check]:
    """What takes no pass over the samples."""
    d, r = whitening.matrix.shape
    known = not isinstance(model, Composite) or isinstance(model.upper, Polynomial | Network | DeepNetwork)
    return [
        checks.units(sum(len(W) for W in model.hidden_weights)),
        checks.inputs(r, d),
        checks.width(evidence, model.n_hidden),
        checks.affine_part(evidence.sign_choices, _affine_term(model)),
        checks.derivative(model.activation.differentiable and known, str(model.activation)),
        checks.size(_n_free(model, bias), many),
    ]


def _affine_term(model: Model) -> str | None:
    """What affine part a network's own term takes up, in the words of `checks.affine_part`."""
    if isinstance(model, Composite):
        return "no"
    if model.C is None:
        return None
    return "all" if model.depth == 1 else "inputs"


def _information(
    white: Model, curvature: InformationSums | None, samples: Source, bias: bool
) -> Information | ManyWeights:
    """From the sums behind it, or for more weights than these are formed for by its products."""
    if curvature is not None:
        return Information.of(curvature)
    assert isinstance(white, Network)
    return by_products(white, bias, samples)


def _probes(white: Model, rng: np.random.Generator, bias: bool) -> np.ndarray:
    """Units that might be missing in the first layer: half of them anywhere, half close to those found, (e, D)."""
    W = white.hidden_weights[0]
    b = white.b if isinstance(white, Network) else np.zeros(len(W))
    V = np.hstack([W, b[:, None]]) if bias else W
    anywhere = rng.standard_normal((N_PROBES // 2, V.shape[1]))
    near = rng.integers(len(V), size=N_PROBES - len(anywhere))
    unit = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
    return np.vstack([anywhere, unit[near] + 0.3 * rng.standard_normal((len(near), V.shape[1]))])


def _structure(information: Information, variance: float, probes: np.ndarray | None, samples: Source) -> float:
    """The probability, if the residual is noise, of correlating with the probes as it does.

    Where noise of one variance does not explain it, noise that differs from sample to sample may.
    """
    p_value = information.score_test(variance)
    if p_value >= checks.SIGNIFICANCE or probes is None:
        return p_value
    scores = ProbeScores(information.model, information.free, probes, information.explained)
    return max(p_value, reduce(samples, scores).p_value())


def _left_out(influence: Influence, p: int) -> checks.LeftOut:
    fewest = float(influence.carried_by.min(initial=np.inf))
    return checks.LeftOut(influence.left_out / p, influence.freedom, influence.n, fewest)


def _signs(normal: Model, errors: Errors, evidence: Evidence) -> Check:
    """[ATV21, eq. 5], layer by layer, against the covariance of the weights."""
    choices, p_value, complete, n_units = max(evidence.sign_choices, 1), 0.0, True, 0
    if signs_are_convention(normal):
        return checks.signs_by_convention()
    if not normal.activation.odd_slope:
        return checks.signs(choices, p_value, complete, n_units)
    for rivals in _rivals_of_layers(normal, errors):
        choices, p_value = max(choices, len(rivals.flips)), max(p_value, rivals.p_value)
        complete, n_units = complete and rivals.complete, max(n_units, rivals.flips.shape[1])
    return checks.signs(choices, p_value, complete, n_units)


def _twins(normal: Model, errors: ParameterArrays) -> Check:
    """The two units of a layer whose planes are least apart, in standard errors, on whichever side they are on."""
    least, pair = np.inf, (0, 0)
    if normal.activation.odd_slope and normal.activation.homogeneity == 1.0 and not isinstance(normal, Composite):
        arrays, names = normal.to_arrays(), hidden_names(normal)
        for W, b in zip(names[::2], names[1::2]):
            V = np.column_stack([arrays[W], arrays[b]])
            variances = np.column_stack([errors[W], errors[b]]) ** 2 + TWINS**2
            some = max(1, TWIN_PAIRS // V.size)
            for first in range(0, len(V), some):
                own = slice(first, first + some)
                spread = np.sqrt(variances[own, None] + variances)
                same, mirrored = (np.max(np.abs(V[own, None] - sign * V) / spread, axis=2) for sign in (1.0, -1.0))
                apart = np.minimum(same, mirrored)
                np.fill_diagonal(apart[:, first:], np.inf)
                if apart.min() < least:
                    i, j = np.unravel_index(np.argmin(apart), apart.shape)
                    least, pair = float(apart[i, j]), (min(first + int(i), int(j)), max(first + int(i), int(j)))
    return checks.twins(least, pair)


def _rivals_of_layers(normal: Model, errors: Errors) -> list[SignRivals]:
    """Every hidden layer with the weights above it as a network of one hidden layer."""
    if isinstance(normal, Composite):
        deep = normal.to_deep()
        # Below a polynomial the signs of units show in what is not linear in them. A threshold is a bias reversed.
        return [] if deep is None else _rivals_of_layers(deep, errors)
    layers = normal.layers
    starts = np.cumsum([0, *(part.size for layer in layers for part in layer)])[::2]  # C comes after the last of them
    rivals = []
    for number in range(len(layers) - 1):
        (W, b), (A, c) = layers[number], layers[number + 1]
        own = np.r_[starts[number] : starts[number] + W.size, starts[number + 1] : starts[number + 1] + A.size]
        layer = normal if isinstance(normal, Network) else Network(W, b, A, c, normal.activation)
        covariance = partial(errors.covariance, own) if errors.half is not None else None
        rivals.append(sign_rivals(layer, errors.variances[own], covariance))
    return rivals


@dataclass(frozen=True)
class _Sides:
    """How many different inputs every hidden unit is on and off for, and how many any unit can be laid through."""

    on: np.ndarray
    off: np.ndarray
    wanted: np.ndarray
    at_kink: int
    bent: np.ndarray | None = None  # Σ z² on the side with less of it, times the square of the change of slope

    def unseen(self, either: bool) -> tuple[int, str]:
        """How many units are never on, or with `either` on one side alone; and in words what they never do."""
        if either:
            return int(np.count_nonzero((self.on == 0) | (self.off == 0))), "switch"
        return int(np.count_nonzero(self.on == 0)), "switch on"

    @property
    def few(self) -> np.ndarray:
        """Which units have too few samples on one side."""
        needed = self.wanted + checks.MARGIN
        return (self.on < needed) | (self.off < needed)

    @property
    def steady(self) -> bool:
        """Whether one unit alone has few samples, on the side where it is off.

        Without noise it has its weights from the others: relu(z) = relu(−z) + z makes it one of another sign unless two
        of the few, which c cannot both take up, contradict. It is let pass if the others cannot turn beside it.
        """
        few, needed = self.few, self.wanted + checks.MARGIN
        return np.count_nonzero(few) == 1 and bool(np.all((self.on >= needed) & (self.off >= 2), where=few))


def _sides(white: Model, seen: UnitsOn, bias: bool) -> _Sides:
    # A unit of D weights and p output weights, its scale free, passes through (D + p − 1)/p samples. Several outputs
    # would do with fewer than D; as many as the unit has weights are asked for all the same.
    D, p = weights_per_unit(white) - (not bias), white.n_outputs
    wanted = np.maximum((D + p - 1) // p, D - checks.MARGIN)
    on = seen.sums["on"]
    if white.activation.rectified and white.activation.homogeneity != 1.0:
        return _Sides(on, wanted + checks.MARGIN, wanted, 0)  # a unit says nothing where it is off
    if white.activation.homogeneity != 1.0 or not white.activation.odd_slope:
        return _Sides(np.maximum(on, wanted + checks.MARGIN), wanted + checks.MARGIN, wanted, 0)  # no kink to be seen
    bent = np.minimum(seen.sums["on_squared"], seen.sums["off_squared"]) * (2.0 - white.activation.odd_slope) ** 2
    return _Sides(on, seen.sums["off"], wanted, int(seen.sums["at_kink"]), bent)


def _strength(normal: Model, errors: ParameterArrays) -> np.ndarray:
    """The weights above every unit of the last hidden layer over their errors; of a polynomial, its coefficients."""
    name = "coefficients" if "coefficients" in errors else [name for name in errors if not name.endswith("C")][-2]
    spread = np.linalg.norm(errors[name], axis=0)
    return np.linalg.norm(normal.to_arrays()[name], axis=0) / np.maximum(spread, 1e-300)


def _hidden(normal: Model) -> tuple[str, ...]:
    """The arrays of the hidden layers, of a composite those of its first."""
    return ("W", "threshold") if isinstance(normal, Composite) else hidden_names(normal)


def _rows(normal: Model) -> tuple[str, ...]:
    return tuple(name for name in _hidden(normal) if name.startswith("W"))
