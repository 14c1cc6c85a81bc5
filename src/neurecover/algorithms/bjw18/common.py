"""What the exact methods have in common: what they refuse, what they check on the samples, and how they report."""

from __future__ import annotations

import numpy as np

from neurecover.algorithms.atv21.coefficients import gaussian_test
from neurecover.algorithms.bjw18.options import EXACT, ExactOptions
from neurecover.algorithms.bjw18.patterns import ExactWeights, output_rank, output_span
from neurecover.data import ArraySource, Mapped, Source, Whitening, second_moments, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.results import Estimate
from neurecover.search import Task

OPTIONS = ExactOptions()


def samples_for_patterns(
    source: Source, rng: np.random.Generator, options: ExactOptions = OPTIONS
) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `most_rows` samples as arrays, in random order if there are more."""
    return subsample(source, options.most_rows, int(rng.integers(2**31))).collect()


def centred_whitening(source: Source) -> Whitening:
    """Return the whitening by second moments about zero, for networks without biases [BJW18, Remark 3]."""
    return Whitening.of(np.zeros(source.n_inputs), second_moments(source, bias=False).xx)


def as_estimate(exact: ExactWeights, notes: tuple[str, ...] = (), details: object = None) -> Estimate:
    """Return the exact network, or the start where some unit could not be made exact, and the figures either way."""
    details = exact if details is None else details
    k = len(exact.units)
    if exact.exact:
        gap = min(unit.gap for unit in exact.units)
        figures = f"relative residual {exact.residual:.1e}" + ("" if np.isnan(gap) else f", least gap {gap:.0e}")
        return Estimate(exact.network, (*notes, f"all {k} units exact, {figures}"), details=details)
    sentences = list(notes)
    lost = [unit for unit in exact.units if not unit.found]
    if lost:
        null = float(np.median([unit.null for unit in lost]))
        sentences.append(
            f"{exact.found} of {k} units exact; for the others no combination of the outputs vanishes where the unit "
            f"is off (least singular value {null:.1e}): the outputs are noisy, more than {k} units are behind them, "
            "or the rough directions are too far off"
        )
    else:
        sentences.append(
            f"all {k} units fit their own samples, but together they leave {exact.residual:.1e} of the outputs"
        )
    network = exact.network if exact.found == k else None
    return Estimate(network, tuple(sentences), () if network is not None else (exact.start,), details)


def units_of_rank(n_hidden: int | None, Y: np.ndarray) -> int:
    """Return the width asked for, or the rank of the outputs, which it equals when A has full column rank.

    UnsolvableError where the outputs do not span that many hidden rows exactly.
    """
    k = n_hidden if n_hidden is not None else output_rank(Y)
    if (reason := short_of_rank(Y, k)) is not None:
        raise UnsolvableError(reason)
    return k


def refuse_exact(name: str, task: Task) -> str | None:
    """Return why an exact method does not apply, or None: it needs no bias, a rectified act and k ≤ min(d, p)."""
    if task.bias:
        return f"{name} is for networks without biases: pass bias=False (--no-bias)."
    if not task.activation.rectified:
        return f"{name} needs an activation that is zero for z ≤ 0 and injective above. Got {task.activation} instead."
    k = task.n_hidden
    if k is not None and k > min(task.n_inputs, task.n_outputs):
        return (
            f"{name} needs at least as many inputs and outputs as units, so that W and A have rank k. Got {k} units, "
            f"{task.n_inputs} inputs and {task.n_outputs} outputs instead."
        )
    return None


def short_of_rank(Y: np.ndarray, k: int) -> str | None:
    """Return why the outputs do not span k hidden rows exactly, with the figure, or None."""
    if k == 0 or k > min(Y.shape):
        return f"the outputs have rank {k} in {Y.shape[1]} dimensions, so no unit can be told from them"
    span = output_span(Y, k)
    if span.strength <= EXACT:
        return (
            f"the outputs have rank {output_rank(Y)} where {k} units of independent output weights give {k} "
            f"(σ_{k}/σ_1 = {span.strength:.1e})"
        )
    if span.excess > EXACT:
        return (
            f"the outputs do not lie in {k} dimensions (σ_{k + 1}/σ_1 = {span.excess:.1e}): they are noisy, or there "
            f"are more than {k} units"
        )
    return None


def gaussian_notes(X: np.ndarray) -> tuple[str, ...]:
    """Return a sentence if a test of the third and fourth moments says that the inputs are not Gaussian about 0."""
    source = ArraySource(X, np.zeros((len(X), 1)))
    test = gaussian_test(Mapped(source, centred_whitening(source)))
    return () if test.gaussian else (f"{test.finding}, so the rough directions are biased.",)
