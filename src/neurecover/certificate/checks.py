"""The checks that every certificate is made of, each a figure held against a limit.

The figures come from `certifying`; what is here holds them against their limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, erfc, fdtrc, fdtri

from neurecover.certificate.verdict import Check
from neurecover.statistics import OutputPrecision, Residuals

EPS = float(np.finfo(np.float64).eps)
ROUNDING = 100 * EPS  # of the size of the terms that are added up
SINGULAR = 1e-13  # smallest eigenvalue of the scaled information
EXACT_WEIGHTS = 1e-8  # the largest error that rounding may have left in a weight of an exact network
APART = 5.0  # standard errors between two planes: weights of one plane differ by more once in two million times
CHANCE = 1e-6  # of a kink that noise invents
FEWEST_TIES = 3  # samples with one value of an output, which noise without a grid does not give
SIGNIFICANCE = 1e-3  # of every test: one right network in a thousand is doubted by each
GOOD_R2 = 0.9
NEARLY_ALL = 0.995  # beyond, three digits of R² say less than one of 1 − R²
CARRIED = 5.0  # degrees of freedom of a standard error; below, Student's t says little about other noise than Gaussian
MAX_PARAMETERS = 6_000  # beyond, the information matrix is not formed (`many_weights`)
FEW, MARGINAL = 4, 3.0  # equations per parameter; worth of a unit that noise explains (both calibrated on sweeps)
MARGIN = 1  # samples at a kink beyond those that any unit can be laid through
IN_DIGITS = {"single precision": "seven digits: ", "half precision": "three digits: ", "bfloat16": "two digits: "}
STEPS = 3.0  # of the grid of an output to its standard deviation
# Σ (f − f̂)²/σ² of a misfit that a test of it alone, at level SIGNIFICANCE, misses once in a thousand: (3.29 + 3.09)².
UNSEEN = 41.0
WIDE, WEAK = 0.1, 4.0  # largest standard error of a weight, least output weight in standard errors


@dataclass(frozen=True)
class Evidence:
    """What the search knows and the samples do not show.

    asked is the number of units the caller gave (None: to be found), sign_choices how many assignments of signs fit
    (0: not determined), agreements how many independent descents ended at the same optimum, last_drop what the last
    unit that was dropped was worth, N·log(Σr² without it / Σr² with it) per parameter. `precision` is what grids the
    outputs lie on, and at_rounding says whether the fit has reached their rounding: then no better one is to be found.
    unrivalled says whether fits from starts a few standard errors away, or with other faint units, end at the same
    optimum.
    """

    asked: int | tuple[int, ...] | None
    sign_choices: int = 1
    agreements: int = 0
    converged: bool = True
    last_drop: float = 0.0
    precision: OutputPrecision | None = None
    at_rounding: bool = False
    unrivalled: bool = True


@dataclass(frozen=True)
class Shown:
    """What a unit must have to be seen: the size of its part of an output, an angle to others, samples at its kink."""

    size: float
    angle: float
    samples: int


def held_out(holdout: Residuals, rounding: np.ndarray) -> tuple[Check, Check]:
    """Is the residual on samples without a part in the fit at the level of rounding; does the network predict them?

    Every output is held against its own rounding (p,) and its own variance; the worst of them decides.
    """
    mse, variance, rms = holdout.mean_squares, holdout.output_variance, holdout.rms
    at_rounding = rms <= rounding
    worst = int(np.argmax(rms / np.maximum(rounding, 1e-300)))
    r2 = np.where(at_rounding, 1.0, 1.0 - mse / np.where(variance > 0.0, variance, np.inf))
    r2 = np.where(at_rounding | (variance > 0.0), r2, 0.0)
    where = "" if len(mse) == 1 else f" of output {worst}"
    level = f"On {holdout.n} held-out samples the residual{where} is"
    if at_rounding.all():
        sentence = f"{level} {rms[worst]:.1e}, the level of rounding ({rounding[worst]:.1e})."
    else:
        leaves = f"R² = {r2[worst]:.3f}" if r2[worst] <= NEARLY_ALL else f"1 − R² = {1.0 - r2[worst]:.2g}"
        sentence = f"{level} {rms[worst]:.3g}, which leaves {leaves}."
    least = int(np.argmin(r2))
    good = bool(r2[least] >= GOOD_R2)
    less = "" if good else f", less than {GOOD_R2:.0%}"
    variance_of = "held-out variance" if len(mse) == 1 else f"held-out variance of output {least}"
    return (
        Check("rounding", bool(at_rounding.all()), float(rms[worst]), float(rounding[worst]), sentence),
        Check(
            "prediction",
            good,
            float(r2[least]),
            GOOD_R2,
            f"It explains {max(float(r2[least]), 0.0):.1%} of the {variance_of}{less}.",
        ),
    )


def units(n_hidden: int) -> Check:
    seen = n_hidden > 0
    sentence = "Hidden units were found." if seen else "No hidden unit was found: give samples on which one switches."
    return Check("units", seen, n_hidden, 1, sentence)


def inputs(rank: int, n_inputs: int) -> Check:
    if rank == n_inputs:
        return Check("inputs", True, rank, n_inputs, f"The inputs span all {n_inputs} dimensions.")
    sentence = f"The inputs span {rank} of {n_inputs} dimensions, so the weights along the others cannot be seen."
    return Check("inputs", False, rank, n_inputs, sentence)


def width(evidence: Evidence, n_hidden: int | tuple[int, ...]) -> Check:
    """Is the number of units, over all layers the limit, the one that was asked for?"""
    asked = evidence.asked
    if asked is None:
        return Check("width", True, None, None, "The number of units was to be found.")
    sentence = "The number of units is the one asked for."
    if asked != n_hidden:
        why = "these samples take no other number"
        if not evidence.sign_choices:
            why = "an affine part is left and is written as pairs of units"
        sentence = f"{asked} units were asked for and {n_hidden} found: {why}."
    return Check("width", asked == n_hidden, None, int(np.sum(asked)), sentence)


def signs(choices: int, p_value: float, complete: bool, n_hidden: int) -> Check:
    """Is there one choice of the units' signs? p_value is the largest with which another one is not excluded."""
    if choices > 1:
        sure = "" if p_value in (0.0, 1.0) else f" as far as these samples tell (p = {p_value:.2g})"
        sentence = f"{choices} choices of the units' signs give the same function{sure}."
    elif not complete:
        sentence = f"The signs of {n_hidden} units are too many to be searched for a second choice."
    else:
        sentence = "No other choice of the units' signs gives the same function."
    return Check("signs", choices <= 1 and complete, choices, 1, sentence)


def signs_by_convention() -> Check:
    """The signs where an affine term takes up what turning a unit changes: they are chosen, and nothing is open."""
    sentence = (
        "Beside an affine term the sign of a unit is a convention: each has a row with a positive largest entry, and "
        "the affine term is the one that goes with it."
    )
    return Check("signs", True, 1, 1, sentence)


def affine_part(sign_choices: int, term: str | None = None) -> Check:
    """Is no affine part left beside the units?

    term is None where the network has no affine term but could have been given one, and "no" where it could not. One of
    a single hidden layer takes up "all" there is, one of several layers what the "inputs" give to the outputs.
    """
    settled = sign_choices != 0 or term == "all"
    sentences = {
        "all": "The affine term takes up whatever affine part there is beside the units.",
        "inputs": "No affine part is left beside the units and the affine term.",
    }
    sentence = sentences.get(term or "no", "No affine part is left beside the units.")
    if not settled:
        untold = ", or there is a linear term, which was not sought" if term is None else ""
        sentence = (
            f"An affine part is left that no choice of signs explains: units are missing, or never switch{untold}."
        )
    return Check("affine part", settled, sign_choices, 1 if term is None else None, sentence)


def derivative(differentiable: bool, activation: str) -> Check:
    sentence = f"{activation} has {'a' if differentiable else 'no'} derivative to test the weights with."
    return Check("derivative", differentiable, None, None, sentence)


def size(n_parameters: int, by_products: bool = False) -> Check:
    """Are the parameters few enough for their information, as a matrix or, where it suffices, by its products?"""
    if by_products:
        return Check("size", True, n_parameters, None, f"There are {n_parameters} parameters, tested by products.")
    if n_parameters <= MAX_PARAMETERS:
        return Check("size", True, n_parameters, MAX_PARAMETERS, f"There are {n_parameters} parameters.")
    sentence = f"{n_parameters} parameters are more than the {MAX_PARAMETERS} whose identifiability is checked."
    return Check("size", False, n_parameters, MAX_PARAMETERS, sentence)


def would_do(n_samples: int, factor: float) -> str:
    """About how many samples would settle it, rounded up to two digits, where `factor` times as many do."""
    wanted = n_samples * factor
    if not np.isfinite(wanted) or wanted > 1e9:
        return ""
    unit = 10.0 ** max(np.floor(np.log10(max(wanted, 1.0))) - 1.0, 0.0)
    return f" About {int(np.ceil(wanted / unit) * unit):,} samples would do."


def equations(n_equations: int, n_free: int, n_samples: int) -> Check:
    if n_equations > n_free:
        return Check("equations", True, n_equations, n_free, f"{n_equations} equations for {n_free} parameters.")
    more = would_do(n_samples, (1 + n_free) / max(n_equations, 1))
    sentence = f"{n_equations} equations cannot determine {n_free} parameters.{more}"
    return Check("equations", False, n_equations, n_free, sentence)


def contradicted(n_alone: int, n_equations: int) -> Check:
    """Could every equation be contradicted by others? Of the name of `equations`, both of which have to pass."""
    if n_alone == 0:
        return Check("equations", True, 0, 0, "Every equation is one of several that determine the same weights.")
    sentence = (
        f"{n_alone} of {n_equations} equations are alone in determining some weight, and would be met whatever it is."
    )
    return Check("equations", False, n_alone, 0, sentence)


def search_ended() -> Check:
    sentence = "Time ended the search before it was through: give a larger time_budget, or none."
    return Check("time", False, None, None, sentence)


def time_ended() -> Check:
    sentence = "The time budget ended before the weights were tested: give a larger time_budget."
    return Check("time", False, None, None, sentence)


def information(weakest: float, unseen: int, what: str = "switch on") -> Check:
    """Does every direction of the weights change an output? `unseen` units never do `what`."""
    if weakest >= SINGULAR:
        sentence = f"The smallest eigenvalue of the information is {weakest:.2g}: every weight is seen."
        return Check("information", True, weakest, SINGULAR, sentence)
    never = f" {unseen} of its units never {what}." if unseen else ""
    sentence = (
        "The samples do not determine every weight: "
        f"the smallest eigenvalue of the information is about {weakest:.1g}.{never}"
    )
    return Check("information", False, weakest, SINGULAR, sentence)


def columns(seldom: np.ndarray | None) -> Check:
    """Does every input differ from its usual value in enough rows? seldom (k, d) says for which weights it does not."""
    if seldom is None:
        return Check("columns", True, None, None, "The samples are too many to count what is usual in every column.")
    rare = np.flatnonzero(seldom.any(axis=0))
    if len(rare) == 0:
        return Check("columns", True, 0, 0, "Every input differs from its usual value in enough samples.")
    listed = ", ".join(map(str, rare[:6])) + (f" and {len(rare) - 6} more" if len(rare) > 6 else "")
    sentence = f"Inputs {listed} differ from their usual value in too few samples with some unit on: other weights fit."
    return Check("columns", False, int(np.count_nonzero(seldom)), 0, sentence)


def open_part(sentence: str, n_open: int) -> Check:
    """What is exact although not all is; it decides nothing."""
    return Check("open weights", True, n_open, 0, sentence)


def kinks(few: np.ndarray, fewest: np.ndarray, wanted: np.ndarray, n_samples: int) -> Check:
    """Does every unit have more different samples on each side of its kink than it has weights?

    `wanted` is how many samples a unit can be laid through whatever they are; each one beyond agrees with an invented
    unit only by chance, which without noise is that of a number being right to the last digits, about 1e-12, and MARGIN
    of them are asked for. `few` are the units for which the `fewest` on a side are too few.
    """
    needed = wanted + MARGIN
    worst = int(np.argmin(fewest - needed)) if len(fewest) else 0
    least, limit = (int(fewest[worst]), int(needed[worst])) if len(fewest) else (0, 0)
    if not few.any():
        sentence = f"Every unit has {least} different samples or more on either side of its kink."
        return Check("kinks", True, least, min(limit, least), sentence)
    sentence = (
        f"{np.count_nonzero(few)} of {len(few)} units have fewer samples on one side of their kink than weights and a "
        f"margin of {MARGIN} ({least} for {int(wanted[worst])} weights): other networks may fit these samples as well."
        f"{would_do(n_samples, limit / least if least else np.inf)}"
    )
    return Check("kinks", False, least, limit, sentence)


def digits(largest: float) -> Check:
    """How far rounding may have moved a hidden unit's weight, from the information at the level of rounding."""
    if largest <= EXACT_WEIGHTS:
        sentence = f"The samples determine every weight; rounding leaves an error of the order of {largest:.0e}."
    else:
        sentence = f"The samples determine some weight so weakly that rounding may have moved it by {largest:.2g}."
    return Check("digits", largest <= EXACT_WEIGHTS, largest, EXACT_WEIGHTS, sentence)


def found_width(shown: Shown | None, affine: bool = False) -> Check:
    """What a width that was found cannot see; it decides nothing. An `affine` term holds units that are always on."""
    if shown is None:
        sentence = "The number of units was found: one that is off wherever there was a question is not seen."
        return Check("found width", True, None, None, sentence)
    sentence = (
        "The number of units was found. One more would not have shown if its part of every output is below about "
        f"{shown.size:.1g}, if it lies within about {shown.angle:.1g} rad of another, or if fewer than "
        f"{shown.samples} samples see it on, or off."
    )
    if affine:
        sentence += " One that is on for all of them is a part of the affine term."
    return Check("found width", True, shown.size, None, sentence)


@dataclass(frozen=True)
class LeftOut:
    """What samples leave that had no part in the fit: the mean square of an output, over n samples whose squares have
    `freedom` degrees of freedom each, and by how many residuals the error of every weight is carried at the least."""

    mse: float
    freedom: float
    n: int
    carried_by: float = np.inf


def noise(
    holdout: Residuals, left_out: LeftOut, n_equations: int, freedom: int, p_structure: float, evidence: Evidence
) -> list[Check]:
    """Is the residual noise, and the optimum the right one?

    The held-out error is compared with what a sample without a part in the fit leaves, by the F distribution with the
    degrees of freedom that the spread of these squares says: those of the samples for Gaussian noise, else fewer.
    """
    variance = float(holdout.output_variance.mean())
    N = holdout.n * len(holdout.origin)
    limit = float(variance * fdtri(N, N, SIGNIFICANCE))
    above = f"The held-out error {holdout.mse:.3g} is not clearly below the outputs' variance {variance:.3g}."
    below = f"The held-out error {holdout.mse:.3g} is below the outputs' variance {variance:.3g}."
    signal = bool(holdout.mse <= limit)
    fewest = left_out.carried_by
    tails = f"The error of every weight rests on {fewest:.0f} residuals or more."
    if fewest < CARRIED:
        tails = (
            f"The error of some weight rests on about {fewest:.1f} residuals, outliers or the only ones that show it."
        )
    n_free = n_equations - freedom
    enough = n_equations >= FEW * n_free
    load = f"{n_equations} noisy equations for {n_free} parameters."
    if not enough:
        load = (
            f"{n_equations} noisy equations for {n_free} parameters are fewer than {FEW} each: too few to tell noise "
            f"from what is missing.{would_do(left_out.n, FEW * n_free / n_equations)}"
        )
    limit_of_drop = MARGINAL if evidence.asked is None and not evidence.at_rounding else None
    open_width = limit_of_drop is not None and evidence.last_drop > limit_of_drop
    spare = "No unit more is called for."
    if open_width:
        spare = "there was no time to see what it is worth"
        if np.isfinite(drop := evidence.last_drop):
            spare = f"it would lower N·log Σr² by {drop:.1f} per parameter, and noise explains {MARGINAL:g}"
        spare = f"Whether there is one unit more is not clear: {spare}."
    agreed = evidence.agreements > 0 or evidence.at_rounding
    rivals = "Fits that begin a few standard errors away end at this optimum, or the errors are too small to ask."
    if not evidence.unrivalled:
        rivals = (
            "Fits that begin a few standard errors away, or with another faint unit, end at other optima, which these "
            "samples do not tell from this one: it takes more of them, or more time to compare."
        )
    ratio = holdout.mse / left_out.mse if left_out.mse > 0.0 else np.inf
    p_holdout = float(fdtrc(left_out.freedom * holdout.n, left_out.freedom * left_out.n, ratio))
    structure = f"The residual correlates with no random unit (p = {p_structure:.2g})."
    if p_structure < SIGNIFICANCE:
        structure = f"The residual is not noise: it correlates with random units (p = {p_structure:.2g})."
    return [
        Check("signal", signal, holdout.mse, limit, below if signal else above),
        Check("tails", fewest >= CARRIED, fewest, CARRIED, tails),
        Check("load", enough, n_equations, FEW * n_free, load),
        Check("spare unit", not open_width, evidence.last_drop, limit_of_drop, spare),
        convergence(evidence.converged),
        Check("agreement", agreed, evidence.agreements, 1, _agreement_sentence(agreed, evidence.at_rounding)),
        Check("agreement", evidence.unrivalled, None, None, rivals),
        Check("structure", p_structure >= SIGNIFICANCE, p_structure, SIGNIFICANCE, structure),
        Check(
            "generalisation",
            p_holdout >= SIGNIFICANCE,
            ratio,
            None,
            f"The held-out error is {ratio:.3g} times what the fit leaves of other samples (p = {p_holdout:.2g}).",
        ),
    ]


def shape(followed: tuple[float, str] | None) -> list[Check]:
    """Does the residual follow no slope, step, bend or power? Of the name of `structure`, both of which have to pass.

    A p-value and the likeliest of them in words, or None where there was too much to do.
    """
    if followed is None:
        return []
    p_value, what = followed
    sentence = f"The residual follows no slope, step, bend or power of what the network is made of (p = {p_value:.2g})."
    if p_value < SIGNIFICANCE:
        sentence = f"The residual is not noise: it follows {what} (p = {p_value:.2g})."
    return [Check("structure", p_value >= SIGNIFICANCE, p_value, SIGNIFICANCE, sentence)]


def output_digits(precision: OutputPrecision | None, spread: np.ndarray, noise: np.ndarray) -> Check:
    """Are the outputs on a grid, and if so is its step small against their standard deviations, spread (p,)?

    And is no value as common as noise, of standard deviations `noise` (p,), cannot make it?

    A rounding error is as good as noise where the value could have been anywhere between two points of the grid. A
    network that gives few different values makes errors that are a function of x, which no standard error covers.
    """
    if precision is not None and precision.ties is not None:
        # Noise of standard deviation σ puts a share of step/(2.5 σ) on one value at the most.
        allowed = FEWEST_TIES + precision.n * precision.step / np.maximum(noise, 1e-300)
        tied = np.flatnonzero(precision.ties > allowed)
        if len(tied):
            sentence = (
                f"{precision.ties[tied[0]]} samples have exactly the same value of output {tied[0]}, which no noise "
                "gives: it is clipped or rounded, or carries no noise of its own where no unit is on."
            )
            return Check("output digits", False, float(precision.ties[tied[0]]), float(allowed[tied[0]]), sentence)
    if precision is None or not (named := [o for o, name in enumerate(precision.names) if name]):
        return Check("output digits", True, None, None, "The outputs carry the digits of double precision.")
    steps = spread[named] / np.maximum(precision.step[named], 1e-300)
    worst = named[int(np.argmin(steps))]
    every = "The outputs carry" if len(set(precision.names)) == 1 else f"Output {worst} carries"
    sentence = f"{every} {IN_DIGITS.get(precision.names[worst], '')}{precision.names[worst]}"
    fewest = float(steps.min())
    if fewest >= STEPS:
        return Check("output digits", True, fewest, STEPS, f"{sentence}.")
    sentence = (
        f"{sentence}, {fewest:.1f} steps to a standard deviation: too coarse for rounding to be as good as noise."
    )
    return Check("output digits", False, fewest, STEPS, sentence)


def twins(apart: float, pair: tuple[int, int]) -> Check:
    """Do no two units share a plane? relu(z) and relu(−z) together make a straight function, which may as well be that
    of a unit that is on for every sample. Of the name of `signs`, both of which have to pass."""
    if apart > APART:
        return Check("signs", True, apart, APART, "No two units share a plane.")
    sentence = (
        f"Units {pair[0]} and {pair[1]} switch on one plane, {apart:.1f} standard errors apart: together they may be "
        "one unit and a straight function, which a unit that is always on would give as well."
    )
    return Check("signs", False, apart, APART, sentence)


def bends(energy: np.ndarray, n_weights: np.ndarray) -> Check:
    """Does every kink stand out of the noise?

    energy (k,) is Σ (A_j z_j)²/σ² on the side of the kink where it is less: what Σ r²/σ² would grow by, at the most,
    without the kink. Noise alone makes a unit of D weights worth χ² with D degrees of freedom. Of the name of `kinks`,
    both of which have to pass.
    """
    limit = chdtri(n_weights, CHANCE)
    if np.all(energy >= limit):
        return Check("kinks", True, float(np.min(energy, initial=np.inf)), None, "Every kink stands out of the noise.")
    faintest = int(np.argmin(energy / limit))
    sentence = (
        f"The kink of unit {faintest} does not stand out of the noise: without it Σ r²/σ² would grow by "
        f"{energy[faintest]:.2g} at the most, and noise alone can make {limit[faintest]:.2g} of it."
    )
    return Check("kinks", False, float(energy[faintest]), float(limit[faintest]), sentence)


def independence(z: np.ndarray) -> Check:
    """Do residuals of neighbouring rows have nothing to do with each other? z (p,) is standard normal if so."""
    p_value = min(1.0, len(z) * float(erfc(np.abs(z).max(initial=0.0) / np.sqrt(2.0))))
    if p_value >= SIGNIFICANCE:
        return Check(
            "independence", True, p_value, SIGNIFICANCE, f"Neighbouring rows are independent (p = {p_value:.2g})."
        )
    sentence = (
        f"The residuals of neighbouring rows are correlated (p = {p_value:.2g}): the rows are no independent samples, "
        "and standard errors would be too small."
    )
    return Check("independence", False, p_value, SIGNIFICANCE, sentence)


def corners(p_value: float) -> Check:
    """Are the kinks sharp? Of the name of `structure`, all of which have to pass."""
    if p_value >= SIGNIFICANCE:
        sentence = f"Next to the kinks the residual has no sign of its own (p = {p_value:.2g})."
        return Check("structure", True, p_value, SIGNIFICANCE, sentence)
    sentence = (
        f"Next to the kinks the residual is of one sign (p = {p_value:.2g}): the units bend smoothly there. "
        "Try another activation."
    )
    return Check("structure", False, p_value, SIGNIFICANCE, sentence)


def precision(widest: float, strength: np.ndarray, n_samples: int) -> list[Check]:
    """Are the standard errors narrow enough to be an answer?

    widest is the largest of a weight of a unit row, strength (k,) the output weights of the units over their errors.
    Errors fall with the root of the number of samples.
    """
    wide = f"A weight's standard error is {widest:.2g} of a unit vector, more than {WIDE}: too wide to be an answer."
    wide += would_do(n_samples, (widest / WIDE) ** 2)
    narrow = f"The largest standard error of a weight is {widest:.2g} of a unit vector."
    weakest = float(strength.min(initial=np.inf))
    strong = f"Every unit's output weight is {weakest:.1f} standard errors from zero or more."
    weak = f"A unit's output weight is only {weakest:.1f} standard errors from zero: it may not exist."
    if weakest > 0.0:
        weak += would_do(n_samples, (WEAK / weakest) ** 2)
    return [
        Check("precision", widest <= WIDE, widest, WIDE, narrow if widest <= WIDE else wide),
        Check("strength", weakest >= WEAK, weakest, WEAK, strong if weakest >= WEAK else weak),
    ]


def noise_level(noise_variance: float, largest: float, misfit: float, bias: bool, weighted: bool) -> Check:
    """What the residual is, told where every check of it has passed.

    misfit is σ √((P + UNSEEN)/n): as far as noise moves P parameters from the function behind n samples, and what a
    test has to have to see more than that.
    bias=False says that the caller has no biases. With weights the noise is that of √w r, w of mean one.
    """
    what = "The residual times the root of a row's weight" if weighted else "The residual"
    sentence = (
        f"{what} is noise of standard deviation {np.sqrt(noise_variance):.3g}; "
        f"the largest standard error of a weight is {largest:.3g}. "
        "Noise on the inputs, rows chosen by their outputs, or a function that differs from the network by less than "
        f"about {misfit:.1g} would not be seen{'' if bias else ', nor small biases, which were not sought'}."
    )
    return Check("noise", True, noise_variance, None, sentence)


def convergence(converged: bool) -> Check:
    sentence = "The last fit has converged." if converged else "The last fit was stopped before it had converged."
    return Check("convergence", converged, None, None, sentence)


def _agreement_sentence(agreed: bool, at_rounding: bool) -> str:
    if at_rounding:
        return "No optimum is better by more than the rounding of the outputs."
    if agreed:
        return "A second descent from another start ended at this optimum."
    return "No second descent from another start ended at this optimum, so a better one may exist."
