"""The certificate of a broken line of one input, fitted to all rows and judged by tests against other shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.certificate.options import DEFAULTS, SegmentOptions
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays


@dataclass(frozen=True)
class Segments:
    """What was found and tested about a broken line.

    `no_hinge` is the p-value of a straight line, and `further` that of the hypothesis that up to three more hinges
    explain only noise. `spare` says that one hinge fewer leaves no more than rounding too, and `at_limit` is the
    probability that a break lies next to where too few inputs would tell of it. `correlation` is that of successive
    residuals, with its z-score and p-value. `rival` names another shape that is `ahead` in BIC or another
    measure; it is empty if there is none. `outliers` are rows, and `errors` the standard errors of the network's
    arrays. For shares and counts, `scatter` is Pearson's χ² with its degrees of freedom and p-value, and `least` the
    smallest information in a segment, as a number of rows of variance one.
    """

    n_rows: float
    n_hinges: int
    told: bool
    loss: str
    dof: float
    noise: float
    exact: bool
    spare: bool
    at_limit: float
    no_hinge: float
    further: float
    correlation: float
    correlation_z: float
    correlation_p: float
    rival: str
    ahead: float
    ahead_in: str
    outliers: tuple[int, ...]
    n_parameters: int
    errors: ParameterArrays
    level: float
    serial_level: float
    ahead_limit: float
    scatter: tuple[float, float, float] | None = None
    least: float = np.inf


def certify_segments(facts: Segments, options: SegmentOptions = DEFAULTS.segments) -> Certificate:
    """Run the checks and return the certificate."""
    enough = facts.dof >= options.freedom
    checks = (
        _segments(facts),
        Check("rounding", facts.exact, facts.noise, None, _noise_in_words(facts)),
        Check(
            "rows",
            enough,
            facts.dof,
            options.freedom,
            f"{facts.n_rows:g} rows leave {facts.dof:g} degrees of freedom for the noise.",
            "Ask for fewer hinges.",
        ),
        _hinges(facts),
        _further(facts, options),
        _neighbours(facts),
        Check(
            "shape",
            not facts.rival,
            facts.ahead,
            facts.ahead_limit,
            f"Another shape does better: {facts.rival}, ahead by {facts.ahead:.1f} in {facts.ahead_in}."
            if facts.rival
            else "No other shape that was tried does better.",
        ),
        _outliers(facts, options.few),
        Check(
            "limits",
            facts.at_limit <= options.at_limit,
            facts.at_limit,
            options.at_limit,
            f"With probability {facts.at_limit:.2g} a break lies next to an end, to another break, or to the margin "
            "where none is looked for: it may as well lie beyond, where too few inputs would tell of it."
            if facts.at_limit > options.at_limit
            else "No break is near an end, or near another one.",
            "Take measurements at more distinct inputs there.",
        ),
        *_counts(facts, options),
        Check("prediction", bool(np.isfinite(facts.noise)), facts.noise, None, "The line predicts within the noise."),
    )
    if facts.scatter is not None:  # the noise has no size of its own
        return Certificate(checks, np.nan, None, int(facts.n_rows), 0, facts.errors if enough else None)
    variance = facts.noise**2
    expected = variance * (1.0 + facts.n_parameters / facts.n_rows)
    errors = facts.errors if enough else None
    return Certificate(checks, expected, variance if enough else None, int(facts.n_rows), 0, errors)


def _segments(facts: Segments) -> Check:
    K = facts.n_hinges
    count = _hinges_in_words(K)
    if K == 0:
        count = "A straight line" + " does as well as hinges" * (facts.no_hinge > facts.level)
    how = f"{facts.loss} loss" if facts.scatter is None else f"{facts.loss} outputs"
    chosen = "told" if facts.told else "found by tests and their posterior"
    return Check("segments", True, float(K), None, f"{count} ({chosen}), {facts.n_rows:g} rows, {how}.")


def _noise_in_words(facts: Segments) -> str:
    if facts.scatter is not None:
        return f"The size of the noise is that of {facts.loss} outputs."
    return f"The residual's standard deviation is {facts.noise:.3g}."


def _counts(facts: Segments, options: SegmentOptions) -> tuple[Check, ...]:
    if facts.scatter is None:
        return ()
    square, dof, p = facts.scatter
    said = " more than its family says, so that intervals and p-values are too small" if p < options.scatter else ""
    return (
        Check(
            "dispersion",
            p >= options.scatter,
            p,
            options.scatter,
            f"Pearson's χ² is {square:.4g} with {dof:g} degrees of freedom (p = {p:.3g}): the output scatters"
            f"{said or ' as its family says'}.",
        ),
        Check(
            "bounds",
            facts.least >= options.least,
            facts.least,
            options.least,
            f"The segment that tells least has the information of {facts.least:.3g} rows of variance one.",
            "Ask for fewer hinges: a segment with almost no events, or nothing else, has no line of its own.",
        ),
    )


def _hinges_in_words(count: int) -> str:
    return f"{count} hinge{'s' * (count != 1)}"


def _hinges(facts: Segments) -> Check:
    p = facts.no_hinge
    if facts.n_hinges == 0:
        return Check("hinges", True, p, None, f"The test of a straight line against hinges has p = {p:.3g}.")
    if facts.spare:
        fewer = _hinges_in_words(facts.n_hinges - 1) if facts.n_hinges > 1 else "A straight line"
        said = f"{fewer} would leave no more than rounding too."
        return Check("hinges", False, p, facts.level, said, "Ask for fewer hinges.")
    said = "" if p <= facts.level else " A straight line does as well."
    return Check("hinges", p <= facts.level, p, facts.level, f"The test of no hinge has p = {p:.3g}.{said}")


def _further(facts: Segments, options: SegmentOptions) -> Check:
    count = _hinges_in_words(facts.n_hinges) if facts.n_hinges else "a straight line"
    return Check(
        "further hinges",
        facts.further >= options.further,
        facts.further,
        options.further,
        f"The test of {count} against up to three more has p = {facts.further:.3g}.",
        "Leave n_hinges=None, which finds their number."
        if facts.told
        else "Take measurements at more distinct inputs: a hinge needs two on either side.",
    )


def _neighbours(facts: Segments) -> Check:
    alone = facts.correlation_p >= facts.serial_level
    figures = f"(correlation {facts.correlation:.2f}, z = {facts.correlation_z:.1f})"
    sentence = (
        f"Residuals of neighbours do not go together {figures}."
        if alone
        else f"Residuals of neighbours go together {figures}: rows that depend on each other, or a shape that is not "
        "a broken line. Intervals and p-values are too small then."
    )
    return Check("neighbours", alone, facts.correlation_p, facts.serial_level, sentence)


def _outliers(facts: Segments, few: float) -> Check:
    rows = facts.outliers
    named = f"Rows far off the fit: {', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}."
    bounded = facts.loss in ("huber", "tukey")
    # Without noise a curve through half of the rows would have the others for outliers.
    many = facts.exact and len(rows) > few * facts.n_rows
    return Check(
        "outliers",
        not rows or (bounded and not many),
        float(len(rows)),
        0.0,
        named if rows else "No row is far off the fit.",
        "Look at these rows." if bounded or facts.scatter else "Use loss='tukey', which gives them no weight.",
    )
