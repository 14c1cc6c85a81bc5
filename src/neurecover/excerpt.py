"""What the pictures of a recovery need of its samples, bounded in size and kept in its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from neurecover.data import Prepared
from neurecover.models import Model

ROWS, OUTPUTS = 400, 6  # kept of the held-out samples: as many as a picture shows, 38 kB
LOOKED_AT = 20_000  # samples for the shares of units, whose standard error is then at most 0.4 %


@dataclass(frozen=True, eq=False)
class Excerpt:
    """Held-out answers beside predictions, and how often every hidden unit is on.

    `observed` and `predicted` (m, q) are up to 400 held-out rows of the first 6 outputs at most, `predicted` by the
    network as it was before these rows joined the fit. `on` has an array per hidden layer: the share of `n_looked_at`
    samples on which the unit's argument w·x + b is positive.
    """

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    observed: np.ndarray
    predicted: np.ndarray
    on: tuple[np.ndarray, ...]
    n_looked_at: int

    @classmethod
    def of_samples(cls, given: Prepared, before: Callable[[np.ndarray], np.ndarray], after: Model) -> Excerpt:
        """Build an excerpt from two networks on whitened inputs: one fitted without the held-out samples, and the final
        one.
        """
        held_X, held_Y = next(given.holdout.blocks(LOOKED_AT))
        X, _ = next(given.samples.blocks(LOOKED_AT))
        rows = np.unique(np.linspace(0, len(held_X) - 1, min(ROWS, len(held_X))).astype(int))
        return cls.of_answers(
            np.asarray(X, dtype=np.float64),
            after,
            np.asarray(held_Y[rows], dtype=np.float64),
            before(np.asarray(held_X[rows], dtype=np.float64)),
            given.source.input_names,
            given.source.output_names,
        )

    @classmethod
    def of_answers(
        cls,
        X: np.ndarray,
        network: Model,
        observed: np.ndarray,
        predicted: np.ndarray,
        input_names: tuple[str, ...],
        output_names: tuple[str, ...],
    ) -> Excerpt:
        """Build an excerpt from outputs and predictions, (m, p) each; the inputs X say how often units are on."""
        on = tuple(np.mean(Z > 0.0, axis=0) for Z in network.preactivations(X))
        return cls(input_names, output_names, observed[:ROWS, :OUTPUTS], predicted[:ROWS, :OUTPUTS], on, len(X))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be saved, by name."""
        shares = {f"on{number}": share for number, share in enumerate(self.on, start=1)}
        return {
            "observed": self.observed,
            "predicted": self.predicted,
            "input_names": np.array(self.input_names, dtype=str),
            "output_names": np.array(self.output_names, dtype=str),
            "n_looked_at": np.array(self.n_looked_at),
        } | shares

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Excerpt:
        """Read what `to_arrays` gave; KeyError where an array is missing."""
        shares = [arrays[f"on{number}"] for number in range(1, sum(name.startswith("on") for name in arrays) + 1)]
        inputs, outputs = (tuple(map(str, arrays[f"{side}_names"])) for side in ("input", "output"))
        return cls(inputs, outputs, arrays["observed"], arrays["predicted"], tuple(shares), int(arrays["n_looked_at"]))
