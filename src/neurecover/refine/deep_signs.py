"""From a student with skips to networks without, by the signs of its units.

With act(z) − act(−z) = m z, a unit that looks the wrong way is made up for by the skips around it: whatever reads h_l
and c_{l−1} with the weights (A, B) is free of the skips B when

    B = −m Σ_j s_j A_j v_jᵀ,        s_j = 1 if unit j of layer l has to be reversed, else 0,

the constant apart, which becomes a bias. One layer after the other from the top: (A, B) is the readout first, then the
rows of the layer above as they are after turning. Each is a linear problem in bits, that of `refine.signs`. With noise
the bits are the likeliest ones of `refine.deep_likely_signs`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data import Source
from neurecover.models import DeepNetwork
from neurecover.models.deep_student import DeepStudent
from neurecover.refine.deep_likely_signs import Information
from neurecover.refine.signs import find_flips

EXACT_MISFIT = 1e-6  # of the sign equations of a fit at the level of rounding
LIKELY = 4  # choices of signs on noisy samples, of every layer and of all
UNLIKELY = 3.0  # times the least W, or its mean for the right signs: W is right to second order alone
MAX_NETWORKS = 32


def without_skips(student: DeepStudent) -> list[DeepNetwork]:
    """The networks that a student which fits exactly can be: the solutions of the equations, or the nearest to one."""
    slope = student.activation.odd_slope or 0.0
    partial = [_Partial((), student.readout.T, 0.0)]
    for layer in range(student.depth - 1, -1, -1):
        V, k = student.hidden[layer], student.widths[layer]
        inputs = slice(0, V.shape[1] - student.bias)
        grown = []
        for part in partial:
            A, skips = part.rows[:, :k], part.rows[:, k:][:, inputs]
            found = find_flips(A, V[:, inputs], -skips, slope, tolerance=EXACT_MISFIT)
            grown += [_turned(student, layer, part, flip, misfit) for flip, misfit in zip(found.flips, found.misfit)]
        partial = sorted(grown, key=lambda part: part.misfit)[:MAX_NETWORKS]
    return [part.network(student) for part in partial]


def likely_networks(source: Source, student: DeepStudent) -> list[DeepNetwork]:
    """The networks that a student fitted to noisy samples is likely to be, the likeliest first."""
    information, n_skips = Information(source, student), 0
    partial = [_Partial((), student.readout.T, 0.0)]
    for layer in range(student.depth - 1, -1, -1):
        likely = information.likely(layer, LIKELY)
        pairs = list(zip(likely.flips, likely.misfit))
        partial = [_turned(student, layer, part, flip, misfit) for part in partial for flip, misfit in pairs]
        n_skips += likely.n_skips
    least = max(min(part.misfit for part in partial), float(n_skips))
    near = sorted((part for part in partial if part.misfit <= UNLIKELY * least), key=lambda part: part.misfit)
    return [part.network(student) for part in near[:LIKELY]]


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


def _turned(student: DeepStudent, layer: int, part: _Partial, flip: np.ndarray, misfit: float) -> _Partial:
    """`part` and one layer below it, with the given units turned and the skips dropped."""
    slope = student.activation.odd_slope or 0.0
    V, k = student.hidden[layer], student.widths[layer]
    A = part.rows[:, :k]
    constant = part.rows[:, -1] + slope * (A[:, flip] @ V[flip, -1]) if student.bias else np.zeros(len(A))
    return _Partial(((A, constant), *part.above), np.where(flip[:, None], -V, V), part.misfit + float(misfit))


def _pair(rows: np.ndarray, n_inputs: int, bias: bool) -> tuple[np.ndarray, np.ndarray]:
    return rows[:, :n_inputs], rows[:, n_inputs] if bias else np.zeros(len(rows))
