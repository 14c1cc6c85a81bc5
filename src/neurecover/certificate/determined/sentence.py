"""Describe in a sentence which weights are exact and which are not determined, and why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

NAMED = 4  # groups of weights that are named one by one


def open_weights(errors: Mapping[str, np.ndarray], unseen: Mapping[str, np.ndarray]) -> str:
    """Return the sentence on undetermined weights, which have infinite errors; units are counted from zero."""
    names = list(errors)
    open_ = {name: ~np.isfinite(value) for name, value in errors.items()}
    first, k = names[0], len(errors[names[0]])
    n_open, n = sum(int(mask.sum()) for mask in open_.values()), sum(mask.size for mask in open_.values())
    if n_open == n:
        return "The samples determine no weight by itself."
    whole = np.flatnonzero(open_[first].all(axis=1) & unseen[first].all(axis=1))
    groups = [f"those of {_listed('unit', whole, k)}, whose kink too few samples show"] if len(whole) else []
    for mask, why in (
        (open_[first] & unseen[first], "which too few samples with the unit on show"),
        (open_[first] & ~unseen[first], "of which the samples show combinations only"),
    ):
        rows = {j: tuple(np.flatnonzero(mask[j])) for j in range(k) if mask[j].any() and j not in whole}
        for columns in dict.fromkeys(rows.values()):
            units = np.array([j for j in rows if rows[j] == columns])
            groups.append(f"those of {_listed('unit', units, k)} on {_listed('column', np.array(columns), 0)}, {why}")
    if len(groups) > NAMED:
        groups = [*groups[:NAMED], f"{len(groups) - NAMED} more groups"]
    others = [name for name in names[1:] if open_[name][~np.isin(np.arange(len(open_[name])), whole)].any()]
    if others:
        groups.append(f"some of {' and '.join(others)}")
    return (
        f"All weights are exact but {'; '.join(groups)}: {n_open} of {n} are open. "
        "Rows with open weights have unit norm over the others."
    )


def _listed(noun: str, indices: np.ndarray, all_of: int) -> str:
    if len(indices) == all_of and all_of > 1:
        return f"every {noun}"
    shown = [str(i) for i in indices[:6]] + ([f"{len(indices) - 6} more"] if len(indices) > 6 else [])
    if len(shown) == 1:
        return f"{noun} {shown[0]}"
    return f"{noun}s {', '.join(shown[:-1])} and {shown[-1]}"
