"""Certify a network from samples: the checks in their order, and the certificate that follows from them."""

from __future__ import annotations

from dataclasses import replace

from neurecover.certificate.case import Case
from neurecover.certificate.checks import alternatives, determined, errors, held_out, network, residual, search, signs
from neurecover.certificate.checks.facts import Row, run_checks
from neurecover.certificate.information.normal_form import by_name
from neurecover.certificate.options import DEFAULTS
from neurecover.certificate.verdict import NEEDS, Certificate, Check, Likelihood, ParameterArrays, passed, verdict_of
from neurecover.statistics import Residuals

TESTABLE = ("units", "size", "derivative")  # if one of these failed, no information matrix is formed
SEEN = ("equations", "information")  # if one of these failed, no standard error is known
IDENTIFIED = ("inputs", *SEEN, "columns", "kinks")  # if one of these failed, only the listed weights are exact

OF_ANY_NETWORK = (
    held_out.rounding,
    held_out.prediction,
    network.units_or_line,
    network.straight_line,
    network.inputs,
    network.width,
    network.affine_part,
    network.derivative,
    network.size,
)
OF_THE_SAMPLES = (determined.equations, determined.terms, determined.information, determined.columns, determined.kinks)
AT_ROUNDING = (signs.signs, signs.planes, signs.exchange, errors.digits)
OF_NOISE = (
    signs.signs,
    signs.planes,
    signs.exchange,
    held_out.signal,
    residual.tails,
    residual.load,
    search.spare_unit,
    search.convergence,
    search.agreement,
    search.rivals,
    residual.structure,
    residual.offset,
    held_out.generalisation,
    residual.shape,
    residual.corners,
    residual.bends,
    alternatives.linear_term,
    alternatives.curvature,
    alternatives.other_activation,
    residual.independence,
    residual.output_digits,
    errors.precision,
    errors.strength,
)
CHECKS = (
    *(Row(check) for check in OF_ANY_NETWORK),
    *(Row(check, after=TESTABLE) for check in OF_THE_SAMPLES),
    Row(determined.contradicted, after=SEEN, noise=False),
    Row(determined.open_weights, (*TESTABLE, "prediction", "width", "affine part"), unless=IDENTIFIED, noise=False),
    *(Row(check, after=IDENTIFIED, noise=False) for check in AT_ROUNDING),
    Row(search.stopped, after=TESTABLE, unless=SEEN, noise=True),
    *(Row(check, after=SEEN, noise=True) for check in OF_NOISE),
    Row(residual.noise_level, after=NEEDS["statistical"], noise=True),
    Row(determined.found_width, after=NEEDS["exact"], noise=False),
    Row(determined.found_width, after=NEEDS["statistical"], noise=True),
)


def certify(case: Case) -> Certificate:
    """Return the certificate of a network."""
    made = run_checks(CHECKS, case, case.noisy)
    vouched = verdict_of(made) in ("exact", "statistical")
    errors = case.errors.arrays if vouched else None
    if any(check.name == "open weights" for check in made) and case.open is not None:
        errors = ParameterArrays(case.open.errors)
    variance = case.variance if vouched else None
    certificate = issue(made, case.holdout, case.samples.count(), variance, errors)
    if not case.noisy or not passed(made, (*TESTABLE, *SEEN)):
        return certificate
    likelihood = Likelihood(float(case.serial.sums["squared"].sum()), case.n_equations, case.n_free)
    kept = vouched and case.n_weights <= case.options.covariance
    certificate = replace(certificate, likelihood=likelihood, covariance_root=case.errors.root if kept else None)
    if not vouched:
        return certificate
    freedom = ParameterArrays(by_name(case.normal, case.influence.carried_by))
    return replace(certificate, noise_variances=case.variances, freedom=freedom)


def issue(
    made: tuple[Check, ...],
    holdout: Residuals,
    n_samples: int,
    noise_variance: float | None = None,
    errors: ParameterArrays | None = None,
) -> Certificate:
    """Return the certificate of these checks; it states the noise only if the verdict supports it."""
    variance = {"exact": 0.0, "statistical": noise_variance}.get(verdict_of(made))
    return Certificate(made, holdout.mse if holdout.n else float("nan"), variance, n_samples, holdout.n, errors)


def certify_untested(case: Case) -> Certificate:
    """Certify a network from its held-out samples alone, when there was no time for the other checks."""
    made = (held_out.rounding(case), held_out.prediction(case), network.units_or_line(case), search.time_ended())
    return issue(made, case.holdout, case.samples.count())


def certify_constant(reason: str, holdout: Residuals, constant: bool, n_samples: int) -> Certificate:
    """Certify the constant that is returned when no network was found, with the reason; nothing may be held out."""
    found = Check("units", False, 0, 1, reason)
    if not holdout.n:
        return issue((found,), holdout, n_samples)
    spread = float(holdout.output_variance.mean())
    r2 = 1.0 if constant else 1.0 - holdout.mse / spread if spread > 0.0 else 0.0
    predicts = f"The mean of the outputs explains {max(r2, 0.0):.1%} of the held-out variance."
    return issue((found, Check("prediction", constant, r2, DEFAULTS.good_r2, predicts)), holdout, n_samples)
