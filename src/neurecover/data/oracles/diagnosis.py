"""Recognise from its answers a model that is not a network, and say what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data.oracles.oracle import Oracle
from neurecover.data.source import LABELS_SHOW, Source
from neurecover.exceptions import OutOfTimeError


@dataclass(frozen=True)
class DiagnosisOptions:
    """How many answers are examined, and what counts as a label, a probability or a straight line."""

    rows: int = 4096  # of outputs that are examined: one block of an oracle
    fewest: int = 20  # in fewer rows, values that look like labels or probabilities may be a coincidence
    total: float = 1e-5  # probabilities in single precision add up to one within this
    lines: int = 16  # along which the answers are tested for being affine
    straight: float = 1e-6  # deviation from a straight line that rounding to single precision explains
    far: tuple[float, float] = (1e3, 1e6)  # distances, in spreads of the inputs, at which clipped answers agree


OPTIONS = DiagnosisOptions()


def diagnose_labels(source: Source) -> str | None:
    """Return a sentence if the outputs are labels or probabilities instead of a network's values, else None."""
    return describe_classes(next(source.blocks(OPTIONS.rows))[1])


def describe_classes(Y: np.ndarray) -> str | None:
    """Return a sentence if the outputs (n, p) are labels or probabilities, else None."""
    if len(Y) < OPTIONS.fewest:
        return None
    values = np.unique(Y)
    within = values[0] >= 0.0 and values[-1] <= 1.0
    whole = within and Y.shape[1] > 1 and np.abs(Y.sum(axis=1) - 1.0).max() <= OPTIONS.total
    if len(values) == 2 and (whole or Y.shape[1] == 1):
        return (
            f"The outputs are labels, {values[0]:g} and {values[1]:g}, and {LABELS_SHOW}. "
            "Give the logits log p/(1 − p) of a model that has probabilities p: neurecover.oracle(model, "
            "output='logit')."
        )
    if whole:
        return (
            "The outputs are probabilities, every row adds up to one. Give the logits that a network computes, "
            "log(Y[:, 1:] / Y[:, :1]), or ask for them: neurecover.oracle(model, output='logit'). If they are no "
            "probabilities, leave out one column, which the others determine."
        )
    return None


def diagnose_probabilities(source: Source) -> str | None:
    """Return a sentence if every output lies in [0, 1] and covers half of it, as probabilities do, else None."""
    return _between(next(source.blocks(OPTIONS.rows))[1])


def _between(Y: np.ndarray) -> str | None:
    if len(Y) < OPTIONS.fewest or Y.min() < 0.0 or Y.max() > 1.0 or np.ptp(Y, axis=0).min() < 0.5:
        return None
    return (
        "Every output lies between 0 and 1: if they are probabilities p, give the logits that a network computes, "
        "log(p / (1 − p)), or ask for them: neurecover.oracle(model, output='logit')."
    )


def diagnose_oracle(oracle: Oracle, homogeneous: bool = True) -> str | None:
    """Return a sentence if the oracle classifies or is constant, affine, clipped or saturated, else None; 64 queries.

    An affine model has y(a) − 2 y((a + b)/2) + y(b) = 0. Far from the origin the answers are constant if the model
    clips its inputs or its units saturate, and keep changing if its units are `homogeneous` like relu.
    """
    a, b = np.split(oracle.draw(2 * OPTIONS.lines), 2)
    near = _answers(oracle, a, 0.5 * (a + b), b)
    if near is None:
        return "The model refuses queries between those that it has answered."
    told = describe_classes(near.reshape(-1, near.shape[2])) or _between(near.reshape(-1, near.shape[2]))
    if told is not None:
        return told
    level = OPTIONS.straight * float(np.abs(near).max())
    if np.ptp(near, axis=(0, 1)).max() <= level:
        return "The model gives the same answer wherever it was queried: query where its inputs lie, with like=X."
    if np.abs(near[0] - 2.0 * near[1] + near[2]).max() <= level:
        return "The model is affine where it was queried: no unit switches. Query where its inputs lie, with like=X."
    if oracle.bounds is not None or not homogeneous:
        return None
    centre = 0.5 * (a + b).mean(axis=0)
    far = _answers(oracle, *(centre + distance * (a[: OPTIONS.lines // 2] - centre) for distance in OPTIONS.far))
    if far is None:
        return "The model refuses queries far from its inputs: give the range it accepts as bounds=(low, high)."
    if np.abs(far[0] - far[1]).max() <= max(level, OPTIONS.straight * float(np.abs(far).max())):
        within = near.min() >= 0.0 and near.max() <= 1.0 and far.min() >= 0.0 and far.max() <= 1.0
        return (
            "Far out the answers of the model no longer change. Either it clips its inputs: give the range as "
            "bounds=(low, high). Or its units saturate: take recover with activation='tanh' or 'auto'."
            + (" Or its answers are probabilities: ask for their logits, output='logit'." if within else "")
        )
    return None


def _answers(oracle: Oracle, *queries: np.ndarray) -> np.ndarray | None:
    """Return the answers (len(queries), n, p), or None if the oracle refuses."""
    try:
        Y = oracle.ask(np.concatenate(queries))
    except OutOfTimeError:
        raise
    except ValueError:
        return None
    return Y.reshape(len(queries), -1, Y.shape[1]).astype(np.float64) if np.isfinite(Y).all() else None
