"""From a student with skips to networks without, by the signs of its units.

With act(z) − act(−z) = m z, a unit that looks the wrong way is made up for by the skips around it: whatever reads h_l
and c_{l−1} with the weights (A, B) is free of the skips B when

    B = −m Σ_j s_j A_j v_jᵀ,        s_j = 1 if unit j of layer l has to be reversed, else 0,

the constant apart, which becomes a bias. One layer after the other from the top: (A, B) is the readout first, then the
rows of the layer above as they are after turning. Each is a linear problem in bits, that of `refine.signs`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.models.deep_student import DeepStudent
from neurecover.refine.signs import find_flips, likely_flips

EXACT_MISFIT = 1e-6  # of the sign equations of a fit at the level of rounding
LIKELY = 4  # choices of signs per layer on noisy samples
MAX_NETWORKS = 32


def without_skips(student: DeepStudent, exact: bool) -> list[DeepNetwork]:
    """The networks that the student can be, the likeliest signs first.

    Where the student fits exactly, these are the solutions of the equations, or the nearest to one; else the few
    choices of least misfit in every layer.
    """
    partial = [_Partial((), student.readout.T, 0.0)]
    for layer in range(student.depth - 1, -1, -1):
        grown = [turned for part in partial for turned in _turn(student, layer, part, exact)]
        partial = sorted(grown, key=lambda part: part.misfit)[:MAX_NETWORKS]
    return [part.network(student) for part in partial]


def count_signs(network: DeepNetwork) -> int:
    """How many choices of signs give this function: 1 where they are determined, 0 where there are too many to search.

    Units of layer l may be reversed together when Σ_j s_j A_j w_jᵀ = 0 for what reads them, biases taking up the
    constant. Not turning any is always one solution.
    """
    count, slope = 1, network.activation.odd_slope or 0.0
    for (W, _), (A, _) in zip(network.layers[:-1], network.layers[1:]):
        search = find_flips(A, W, np.zeros((len(A), W.shape[1])), slope, tolerance=EXACT_MISFIT)
        count *= int(np.count_nonzero(search.misfit <= EXACT_MISFIT)) if search.complete else 0
    return count


def with_skips(network: DeepNetwork, bias: bool) -> DeepStudent:
    """The network as a student whose skips are zero."""
    rows = []
    columns = network.n_inputs
    for number, (W, b) in enumerate(network.layers):
        skips = np.zeros((len(W), columns - W.shape[1] if number else 0))
        rows.append(np.hstack([W, skips, b[:, None]] if bias else [W, skips]))
        columns += len(W)
    return DeepStudent(network.activation, tuple(rows[:-1]), rows[-1].T.copy(), bias)


@dataclass(frozen=True)
class _Partial:
    """The layers above, without skips; `rows` (·, D_l) are the weights of the lowest of them on c_l."""

    above: tuple[tuple[np.ndarray, np.ndarray], ...]
    rows: np.ndarray
    misfit: float

    def network(self, student: DeepStudent) -> DeepNetwork:
        return DeepNetwork([_pair(self.rows, student.n_inputs, student.bias), *self.above], student.activation)


def _turn(student: DeepStudent, layer: int, part: _Partial, exact: bool) -> list[_Partial]:
    """The ways to turn the units of one layer below `part`."""
    slope = student.activation.odd_slope or 0.0
    V, k = student.hidden[layer], student.widths[layer]
    A, skips = part.rows[:, :k], part.rows[:, k:]
    inputs = slice(0, V.shape[1] - student.bias)
    problem = (A, V[:, inputs], -skips[:, inputs], slope)
    flips = find_flips(*problem, tolerance=EXACT_MISFIT).flips if exact else likely_flips(*problem, LIKELY)
    found = []
    for flip in flips:
        left = skips[:, inputs] + slope * (A[:, flip] @ V[flip, inputs])
        misfit = part.misfit + float(np.linalg.norm(left)) / max(float(np.linalg.norm(skips[:, inputs])), 1e-300)
        constant = skips[:, -1] + slope * (A[:, flip] @ V[flip, -1]) if student.bias else np.zeros(len(A))
        rows = np.where(flip[:, None], -V, V)
        found.append(_Partial(((A, constant), *part.above), rows, misfit))
    return found


def _pair(rows: np.ndarray, n_inputs: int, bias: bool) -> tuple[np.ndarray, np.ndarray]:
    return rows[:, :n_inputs], rows[:, n_inputs] if bias else np.zeros(len(rows))
