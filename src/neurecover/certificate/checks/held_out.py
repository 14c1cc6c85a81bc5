"""Checks of the network's residuals on held-out samples."""

from __future__ import annotations

import numpy as np
from scipy.special import fdtrc, fdtri

from neurecover.certificate.case import Case
from neurecover.certificate.checks.facts import Facts
from neurecover.certificate.verdict import Check

OTHER_COLUMNS = (
    "See that inputs and outputs are the columns that were meant, and in the same order, row by row: nothing that was "
    "fitted predicts other outputs."
)


def rounding(case: Case) -> Check:
    """Check that the residual is at the level of rounding, of each output separately; the worst output decides.

    If held-out samples have joined the fit, the sealed samples, which were not used, take their place.
    """
    holdout, options, joined = case.holdout, case.options, case.evidence.joined
    rms, limit = holdout.rms, case.rounding
    worst = int(np.argmax(rms / np.maximum(limit, 1e-300)))
    where = "" if len(rms) == 1 else f" of output {worst}"
    on = f"On {holdout.n} held-out samples"
    if joined:
        on = f"{joined} held-out samples were fitted after all. On {holdout.n} others, which nothing had looked at,"
    level = f"{on} the residual{where} is"
    if not case.noisy:
        sentence = f"{level} {rms[worst]:.1e}, the level of rounding ({limit[worst]:.1e})."
    else:
        r2 = _explained(case)[worst]
        leaves = f"R² = {r2:.3f}" if r2 <= options.nearly_all else f"1 − R² = {1.0 - r2:.2g}"
        sentence = f"{level} {rms[worst]:.3g}, which leaves {leaves}."
    return Check("rounding", not case.noisy, float(rms[worst]), float(limit[worst]), sentence)


def prediction(case: Facts) -> Check:
    """Check that the network predicts every output, compared with the output's variance and with a straight line.

    A good predictor explains most of the variance. If noise makes that impossible, the network must be better than the
    mean and than a straight line. If the held-out samples are too few to distinguish it from a line, being better than
    the mean on all samples suffices.
    """
    r2, limit = _explained(case), case.options.good_r2
    least = int(np.argmin(r2))
    variance = "held-out variance" if len(r2) == 1 else f"held-out variance of output {least}"
    sentence = f"It explains {max(float(r2[least]), 0.0):.1%} of the {variance}"
    good, line = bool(r2[least] >= limit), case.evidence.line
    if good or line is None:
        return Check(
            "prediction", good, float(r2[least]), limit, f"{sentence}{'' if good else f', less than {limit:.0%}'}."
        )
    spread = case.holdout.output_variance
    by_line = 1.0 - line / np.where(spread > 0.0, spread, np.inf)
    worst = int(np.argmin(r2 - np.maximum(by_line, 0.0)))
    better = case.n_units == 0 or (case.evidence.better and bool(r2[worst] > 0.0))
    better = better or case.evidence.predicts
    than = f"a straight line {max(float(by_line[worst]), 0.0):.1%}"
    if worst != least:
        than = f"{max(float(r2[worst]), 0.0):.1%} of that of output {worst}, and {than}"
    sentence += "." if case.n_units == 0 else f", {than}{'' if better else ': it predicts no better'}."
    return Check("prediction", better, float(r2[worst]), max(float(by_line[worst]), 0.0), sentence)


def _explained(case: Facts) -> np.ndarray:
    """Return R² of every output, (p,): 1 if the residual is rounding, 0 if a constant output is not reproduced."""
    mse, variance = case.holdout.mean_squares, case.holdout.output_variance
    at_rounding = case.holdout.rms <= case.rounding
    r2 = 1.0 - mse / np.where(variance > 0.0, variance, np.inf)
    return np.where(at_rounding, 1.0, np.where(variance > 0.0, r2, 0.0))


def signal(case: Case) -> Check:
    """Check that the leave-one-out error is clearly below the outputs' variance.

    The leave-one-out error is known for every sample (`LeftOut`), so a weak signal shows even with few held-out
    samples. Network and mean are compared on the same samples. By BIC the q parameters of the network beyond the mean
    must lower the mean square of N outputs to N^(−q/N) of the variance [Schwarz 1978]. If `strength` tests every unit
    against draws from the posterior, an error below the variance is enough.
    """
    mse, variance, p = case.left_out.mse, float(case.output_variance.mean()), case.model.n_outputs
    N, q = float(case.left_out.n * p), max(case.n_free - p, 1)
    return _signal(mse, variance, variance * (N ** (-q / N) if case.drawn is None else 1.0))


def signal_of_answers(case: Facts) -> Check:
    """Check that the held-out error is clearly below the outputs' variance, for answers with individual rounding."""
    holdout, N = case.holdout, case.holdout.n * len(case.holdout.origin)
    variance = float(holdout.output_variance.mean())
    return _signal(holdout.mse, variance, float(variance * fdtri(N, N, case.options.significance)))


def _signal(mse: float, variance: float, limit: float) -> Check:
    how = "below" if mse <= limit else "not clearly below"
    sentence = f"The error out of the fit, {mse:.3g}, is {how} the outputs' variance {variance:.3g}."
    return Check("signal", mse <= limit, mse, limit, sentence, OTHER_COLUMNS)


def generalisation(case: Facts) -> Check:
    """Check that the held-out error agrees with the leave-one-out error of the fitted samples.

    They are compared by the F distribution. Its degrees of freedom follow from the spread of the squared residuals: the
    numbers of samples for Gaussian noise, otherwise fewer.
    """
    holdout, left_out = case.holdout, case.left_out
    ratio = holdout.mse / left_out.mse if left_out.mse > 0.0 else np.inf
    p_value = float(fdtrc(left_out.freedom * holdout.n, left_out.freedom * left_out.n, ratio))
    sentence = f"The held-out error is {ratio:.3g} times what the fit leaves of other samples (p = {p_value:.2g})."
    return Check("generalisation", p_value >= case.options.significance, ratio, None, sentence)
