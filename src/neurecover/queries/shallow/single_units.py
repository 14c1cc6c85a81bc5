"""One unit at a time: queries at which all other units are inactive.

If the rows of W are independent there are x with z_j > 0 and z_i < 0 for all i ≠ j. With an activation that is zero on
the left the answers there are

    y = A_j (w_j·x + b_j) + c,

and c itself where every unit is inactive. Their rounding is relative to the terms of the sum, so a unit with small A_j,
whose digits are lost among larger terms elsewhere, is seen as sharply as the others. The d + 1 unknowns per output
follow from a linear least-squares fit, of rank one over the outputs. Half of the queries go so far out that A_j z_j
outgrows c and its rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Network, replace_arrays
from neurecover.queries.box.black_box import Box
from neurecover.queries.shallow.centres import Centres
from neurecover.queries.shallow.planes import slopes_of


@dataclass(frozen=True, eq=False)
class SingleUnitFit:
    """A network and the expected error of every row (k,), with the queries X (n, d) and answers Y (n, p) used."""

    network: Network
    error: np.ndarray
    X: np.ndarray
    Y: np.ndarray


def refine_single_units(
    box: Box, network: Network, error: np.ndarray, rng: np.random.Generator
) -> SingleUnitFit | None:
    """Fit every unit to answers of its own if that improves on `error` (k,); None if units cannot be isolated."""
    options = box.options.shallow
    network = network.normal_form()
    centres = Centres.around(box, network, rng)
    if centres.inverse is None or slopes_of(network.activation)[0] != 0.0:
        return None
    k, d = network.W.shape
    count = options.unit_queries * (d + 1)
    queries = [_draw_queries(centres, None, 32, np.ones(32), rng)]
    answers = [box(queries[0])]
    c = np.median(answers[0], axis=0)
    W, b, A, error = network.W.copy(), network.b.copy(), network.A.copy(), error.copy()
    for j in range(k):
        far = options.above * np.abs(c).max() / max(float(np.abs(A[:, j]).max()) * centres.radius, 1e-300)
        reach = np.where(np.arange(count) % 2, np.clip(far, 1.0, options.farthest), 1.0)
        queries.append(_draw_queries(centres, j, count, reach, rng))
        answers.append(box(queries[-1]))
        rows, expected = _fit_affine(queries[-1], answers[-1] - c, options.caution)
        left, size, right = np.linalg.svd(rows, full_matrices=False)
        scale = size[0] * np.linalg.norm(right[0, :d])
        if expected < error[j] * scale:
            sign = np.sign(right[0, :d] @ network.W[j])
            W[j], b[j], A[:, j] = sign * right[0, :d], sign * right[0, d], sign * size[0] * left[:, 0]
            error[j] = expected / scale
    refined = replace_arrays(network, W=W, b=b, A=A, c=c).normal_form()
    return SingleUnitFit(refined, error, np.concatenate(queries), np.concatenate(answers))


def _fit_affine(X: np.ndarray, Y: np.ndarray, caution: float) -> tuple[np.ndarray, float]:
    """Return the rows (p, d + 1) of the best Y = rows·(x, 1), and the expected error of their first d entries."""
    inputs = np.column_stack([X, np.ones(len(X))])
    rows = np.linalg.lstsq(inputs, Y, rcond=None)[0].T
    left = np.linalg.norm(Y - inputs @ rows.T) / np.sqrt(Y.shape[1] * (len(X) - inputs.shape[1]))
    inverse = np.linalg.pinv(inputs)
    return rows, float(caution * left * np.linalg.norm(inverse[:-1]))


def _draw_queries(
    centres: Centres, j: int | None, count: int, reach: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw points (count, d), rounded to float32, where only unit j is active, or no unit for j = None.

    reach (count,) is how many times farther out than usual they are.
    """
    assert centres.inverse is not None
    W, b = centres.network.W, centres.network.b
    k, d = W.shape
    z = -rng.uniform(0.2, 1.0, (count, k))
    if j is not None:
        z[:, j] *= -2.0
    free = rng.standard_normal((count, d))
    free -= (free @ W.T) @ centres.inverse.T
    seen = z @ centres.inverse.T
    # In directions that no hyperplane depends on, take the length that a random point would have.
    zeta = centres.radius * np.sqrt(k / d) / np.median(np.linalg.norm(seen, axis=1))
    far = reach[:, None]
    X = (far * zeta * z - b) @ centres.inverse.T + far * centres.radius / np.sqrt(d) * free
    return X.astype(np.float32).astype(float)
