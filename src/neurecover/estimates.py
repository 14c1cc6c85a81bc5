"""An algorithm's own estimate, and the steps of a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Whitening
from neurecover.models import Model, from_arrays
from neurecover.wording import describe, in_columns


@dataclass(frozen=True)
class Stage:
    """One step of a recovery.

    Attributes
    ----------
    name : str
        The name of the step.
    seconds : float
        Its duration.
    detail : str
        Its outcome.

    Examples
    --------
    >>> from neurecover import Stage
    >>> Stage("read", 0.1, "500 samples").name
    'read'
    """

    name: str
    seconds: float
    detail: str


@dataclass(frozen=True)
class Estimate:
    """An algorithm's own answer, before any refinement.

    Attributes
    ----------
    network : Network, DeepNetwork, Composite or None
        The network found; None if none was.
    notes : tuple of str
        Figures of the estimate, or the reason why there is no network.
    details : object
        The algorithm's own record, a frozen dataclass with named fields (tensors, spectra, masks, ratios), in whitened
        coordinates z of zero mean and unit covariance.
    starts : tuple of ndarray of shape (m, D)
        Further hidden weights from which a descent may start, in the same coordinates.
    whitening : Whitening or None
        The map to these coordinates: z = (x − mean) matrix, so that W_x = W_z matrixᵀ; None if the samples were not
        whitened.
    method, form : str
        The algorithm and its form.
    seconds : float
        The duration.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(4, 2, random_state=0)
    >>> found = nr.estimate(*nr.simulate.sample(truth, 20_000, random_state=0), n_hidden=2, random_state=0)
    >>> found.method, found.network.n_hidden
    ('hermite', 2)
    """

    network: Model | None
    notes: tuple[str, ...] = ()
    starts: tuple[np.ndarray, ...] = field(default=(), repr=False)
    details: Any = field(default=None, repr=False)
    method: str = ""
    form: str = "best"
    seconds: float = 0.0
    whitening: Whitening | None = field(default=None, repr=False)

    def rows(self) -> list[tuple[str, str]]:
        """Return the summary as rows of two columns.

        Returns
        -------
        list of (str, str)
            Pairs of label and text; the label is empty if the row continues the previous one.
        """
        rows = [("method", f"{self.method} ({self.form}), {self.seconds:.2f} s"), ("network", describe(self.network))]
        rows += [("notes" if i == 0 else "", note) for i, note in enumerate(self.notes)]
        if self.details is not None:
            rows.append(("details", f"estimate.details has {', '.join(vars(self.details))}."))
        return rows

    def summary(self) -> str:
        """Return the method, the network and the notes as text.

        Returns
        -------
        str
            A few lines.
        """
        return in_columns(self.rows())


def from_record(
    record: dict[str, Any] | None, arrays: dict[str, np.ndarray], path: str | Path, activation: Activation | None
) -> Estimate | None:
    """Read the estimate that was saved with a recovery; None if there was none."""
    if record is None:
        return None
    stored = with_prefix(arrays, "estimate_")
    starts = tuple(arrays[f"start_{i}"] for i in range(record["n_starts"]))
    estimate = Estimate(from_arrays(stored, path, activation) if stored else None, tuple(record["notes"]), starts)
    return replace(estimate, method=record["method"], form=record["form"], seconds=record["seconds"])


def with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
