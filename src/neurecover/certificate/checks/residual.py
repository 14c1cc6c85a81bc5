"""Checks that the residual is nothing but noise."""

from __future__ import annotations

import numpy as np
from scipy.special import chdtri, erfc

from neurecover.certificate.case import Case
from neurecover.certificate.checks.facts import Facts, would_do
from neurecover.certificate.verdict import Check

IN_DIGITS = {"single precision": "seven digits: ", "half precision": "three digits: ", "bfloat16": "two digits: "}
OUTLIERS = "Look at the samples with the largest residuals: a few outliers may decide the fit."
NO_BIASES = "With biases and offset fixed at zero"
ONE_MODEL = "Recover from the rows of one period, file or version of the model at a time."
UNCLIPPED = (
    "Give the outputs as they were before they were clipped or rounded. If they were neither, look for the error in a "
    "few wrong rows or in the inputs."
)


def load(case: Facts) -> Check:
    """Check that there are enough noisy equations per parameter to distinguish noise from a missing part."""
    n, P, few = case.n_equations, case.n_free, case.options.few
    enough, n_wanted = n >= few * P, few * P / n * case.n_samples
    sentence = f"{n} noisy equations for {P} parameters."
    if not enough:
        sentence = (
            f"{n} noisy equations for {P} parameters are fewer than {few} each: too few to tell noise from what is "
            f"missing.{would_do(n_wanted)}"
        )
    return Check("load", enough, n, few * P, sentence, n_wanted=0.0 if enough else n_wanted)


def tails(case: Facts) -> Check:
    """Check that the error of every weight depends on several residuals."""
    fewest, limit = case.carried_by, case.options.carried
    sentence = f"The error of every weight rests on {fewest:.0f} residuals or more."
    if fewest < limit:
        sentence = (
            f"The error of some weight rests on about {fewest:.1f} residuals, outliers or the only ones that show it."
        )
    # With hardly more equations than `load` needs, the cause is a lack of rows and not an outlier.
    scarce = fewest < limit and case.n_equations < 2 * case.options.few * case.n_free
    n_wanted = case.n_samples * limit / max(fewest, 1.0) if scarce else 0.0
    return Check("tails", fewest >= limit, fewest, limit, sentence, OUTLIERS, n_wanted)


def structure(case: Facts) -> Check:
    """Check that the residual correlates with no random unit."""
    p_value, limit = case.p_structure, case.options.significance
    sentence = f"The residual correlates with no random unit (p = {p_value:.2g})."
    if p_value < limit:
        sentence = f"The residual is not noise: it correlates with random units (p = {p_value:.2g})."
    return Check("structure", p_value >= limit, p_value, limit, sentence)


def shape(case: Case) -> Check | None:
    """Check that the residual follows no slope, step, bend or power. Shares the name `structure`; all must pass."""
    if case.shape is None:
        return None
    (p_value, what), limit = case.shape, case.options.significance
    sentence = f"The residual follows no slope, step, bend or power of what the network is made of (p = {p_value:.2g})."
    if p_value < limit:
        sentence = f"The residual is not noise: it follows {what} (p = {p_value:.2g})."
    return Check("structure", p_value >= limit, p_value, limit, sentence)


def corners(case: Case) -> Check | None:
    """Check that the kinks are sharp. Shares the name `structure` with other checks; all must pass."""
    p_value, limit = case.p_corners, case.options.significance
    if p_value is None:
        return None
    sentence = f"Next to the kinks the residual has no sign of its own (p = {p_value:.2g})."
    if p_value < limit:
        sentence = (
            f"Next to the kinks the residual is of one sign (p = {p_value:.2g}): the units bend smoothly there. "
            "Try another activation."
        )
    return Check("structure", p_value >= limit, p_value, limit, sentence)


def offset(case: Case) -> Check | None:
    """If biases are fixed at zero, check that the residual has mean zero. Shares the name `structure`."""
    if case.bias:
        return None
    z, limit = case.mean_z, case.options.significance
    p_value = min(1.0, len(z) * float(erfc(np.abs(z).max(initial=0.0) / np.sqrt(2.0))))
    sentence = f"{NO_BIASES}, the residual has mean zero (p = {p_value:.2g})."
    if p_value < limit:
        sentence = f"The residual is not noise. {NO_BIASES}, it has a mean (p = {p_value:.2g})."
    return Check("structure", p_value >= limit, p_value, limit, sentence)


def bends(case: Case) -> Check | None:
    """Check that every kink stands out from the noise. Shares the name `kinks` with another check; both must pass.

    Without a kink, Σ r²/σ² would grow by at most Σ (A_j z_j)²/σ² over the weaker side of the kink. Noise alone makes
    a unit with D weights lower Σ r²/σ² by χ² with D degrees of freedom.
    """
    if case.bends is None:
        return None
    energy, n_weights = case.bends
    limit = chdtri(n_weights, case.options.chance)
    if np.all(energy >= limit):
        return Check("kinks", True, float(np.min(energy, initial=np.inf)), None, "Every kink stands out of the noise.")
    faintest = int(np.argmin(energy / limit))
    unit = case.n_units - len(energy) + faintest
    sentence = (
        f"The kink of unit {unit} does not stand out of the noise: without it Σ r²/σ² would grow by "
        f"{energy[faintest]:.2g} at the most, and noise alone can make {limit[faintest]:.2g} of it."
    )
    remedy = "Give samples on both sides of every unit's kink: inputs that spread wider than these."
    return Check("kinks", False, float(energy[faintest]), float(limit[faintest]), sentence, remedy)


def independence(case: Facts) -> Check:
    """Check that residuals of neighbouring rows are independent, and that all rows follow the same weights."""
    z, limit = case.serial_z, case.options.significance
    p_value = min(1.0, len(z) * float(erfc(np.abs(z).max(initial=0.0) / np.sqrt(2.0))))
    sentence = f"Neighbouring rows are independent (p = {p_value:.2g})."
    if p_value < limit:
        sentence = (
            f"The residuals of neighbouring rows are correlated (p = {p_value:.2g}): the rows are no independent "
            "samples, and standard errors would be too small."
        )
    remedy = "Give independent samples: rows that follow on from each other say less than their number."
    copied = case.evidence.copied
    if copied > case.options.copied:  # copies of rows also make successive residuals alike
        sentence = f"{copied:.0%} of the rows are copies of others, and standard errors would be too small."
        return Check("independence", False, copied, case.options.copied, sentence, "Leave out rows that are copies.")
    changed = case.p_constancy if p_value >= limit else None
    if changed is None:
        return Check("independence", p_value >= limit, p_value, limit, sentence, remedy)
    if changed < limit:
        sentence = f"The first rows and the later ones follow different weights (p = {changed:.2g})."
        return Check("independence", False, changed, limit, sentence, ONE_MODEL)
    sentence = f"{sentence[:-1]} and follow the same weights from the first to the last (p = {changed:.2g})."
    return Check("independence", True, min(p_value, changed), limit, sentence)


def output_digits(case: Case) -> Check:
    """Check that a grid of outputs is fine against their standard deviation, and that no value is too frequent.

    A rounding error acts like noise if the exact value could have been anywhere between two points of the grid. If a
    network has few different values, its rounding errors are a function of x, which no standard error covers.
    """
    precision, options = case.precision, case.options
    if precision.ties is not None:
        # With noise of standard deviation σ, at most a share of step/(2.5 σ) of the samples has the same value.
        allowed = options.ties + precision.n * precision.step / np.maximum(case.noise_per_output, 1e-300)
        tied = np.flatnonzero(precision.ties > allowed)
        if len(tied):
            most, limit = precision.ties[tied[0]], allowed[tied[0]]
            sentence = (
                f"{most} samples have exactly the same value of output {tied[0]}, which no noise gives: it is clipped "
                "or rounded, or carries no noise of its own where no unit is on."
            )
            return Check("output digits", False, float(most), float(limit), sentence, UNCLIPPED)
    if not (named := [o for o, name in enumerate(precision.names) if name]):
        return Check("output digits", True, None, None, "The outputs carry the digits of double precision.")
    steps = np.sqrt(case.holdout.output_variance)[named] / np.maximum(precision.step[named], 1e-300)
    worst, fewest = named[int(np.argmin(steps))], float(steps.min())
    every = "The outputs carry" if len(set(precision.names)) == 1 else f"Output {worst} carries"
    sentence = f"{every} {IN_DIGITS.get(precision.names[worst], '')}{precision.names[worst]}"
    enough = fewest >= options.steps
    if not enough:
        sentence += f", {fewest:.1f} steps to a standard deviation: too coarse for rounding to be as good as noise"
    return Check("output digits", enough, fewest, options.steps, f"{sentence}.", "Give outputs with more digits.")


def noise_level(case: Case) -> Check:
    """State the size of the noise, once every check of the residual has passed.

    A misfit below σ √((P + unseen)/n) is not detected: noise alone moves a fit of P parameters by σ √(P/n). With
    weights, σ is the standard deviation of √w r, for w of mean one.
    """
    variance = case.variance
    misfit = float(np.sqrt(variance * (case.n_free + case.options.unseen) / case.n_equations))
    what = "The residual times the root of a row's weight" if case.samples.weighted else "The residual"
    biases = "" if case.bias else "; nor would small biases, as all were fixed at zero"
    sentence = (
        f"{what} is noise of standard deviation {np.sqrt(variance):.3g}{_uneven(case)}; "
        f"the largest standard error of a weight is {case.largest_error:.3g}. "
        "Noise on the inputs, rows chosen by their outputs, or a function that differs from the network by less than "
        f"about {misfit:.1g} would not be seen{biases}."
    )
    return Check("noise", True, variance, None, sentence)


def _uneven(case: Case) -> str:
    """Return a phrase on outputs with unequal noise; empty if dividing each output by its noise would gain little.

    Outputs that tell equally much of a weight, with noise of variances v, give it a variance in proportion to mean(v).
    Divided by their noise they give it 1/mean(1/v).
    """
    spread = np.sqrt(case.variances)
    gain = float(np.sqrt(case.variance * np.mean(1.0 / np.maximum(case.variances, 1e-300))))
    if gain < case.options.uneven:
        return ""
    low, high = int(np.argmin(spread)), int(np.argmax(spread))
    times = f"up to {gain:.2g}" if gain < 1_000.0 else "over 1,000"
    return (
        f", from {spread[low]:.2g} in output {low} to {spread[high]:.2g} in output {high} (if every output were "
        f"divided by its own, errors would be {times} times smaller)"
    )
