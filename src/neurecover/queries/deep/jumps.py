"""The jump of the gradient at the kinks of a line, from the gradients in the linear pieces on either side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import choose_steps, draw_basis, measure_gradients
from neurecover.queries.lines.scanned import Scanned


@dataclass(frozen=True, eq=False)
class Jump:
    """The jump of the gradient at a kink, (d, p), the standard error of a component, and that of the kink's place."""

    value: np.ndarray
    sigma: float
    place: float


class LineJumps:
    """Gradients in the linear pieces of a line, measured when first needed and kept for the layers above."""

    def __init__(self, box: Box, line: Scanned, rng: np.random.Generator) -> None:
        self._box, self._line, self._rng = box, line, rng
        self._basis = draw_basis(rng, len(line.x))
        self._known: dict[int, tuple[np.ndarray, float] | None] = {}

    def jump(self, kink: int) -> Jump | None:
        """Return the gradient's jump at a kink; None if a region beside it is too narrow."""
        left, right = self._gradient(kink), self._gradient(kink + 1)
        if left is None or right is None:
            return None
        place = float(self._line.sigma[kink] * np.linalg.norm(self._line.v))
        return Jump(right[0] - left[0], float(np.hypot(left[1], right[1])), place)

    def _gradient(self, piece: int) -> tuple[np.ndarray, float] | None:
        """Return the gradient (d, p) in a piece and the error of a component; None if the region is too narrow."""
        if piece not in self._known:
            box, kinks = self._box, self._line.kinks
            point = self._line.x + kinks.centres[piece] * self._line.v
            size, width = 1.0 + float(np.linalg.norm(point)), kinks.widths[piece] * float(np.linalg.norm(self._line.v))
            if box.coarse:
                longest = np.array([min(width / 6.0, 0.1 * size)])
                values = box(point[None])
                steps = choose_steps(box, point[None], values, self._basis, longest, rng=self._rng)
            else:
                # The region may be narrow to the sides. The digits that a short step costs are restored by distant
                # kinks.
                values, steps = None, np.array([min(0.03 * width, 1e-4 * size)])
            measured = measure_gradients(box, point[None], self._basis, steps, rng=self._rng, values=values)
            # Each component is a difference of two answers over its step.
            sigma = float(measured.noise[0] * np.sqrt(2.0 * np.mean(measured.steps[0] ** -2.0)))
            self._known[piece] = (measured.full()[0].T, sigma) if measured.sound[0] else None
        return self._known[piece]
