"""The first layer's rows outside the directions in which they were found, from coarse answers.

A first layer of k units, fewer than inputs, depends on x along the k columns of a basis B alone, and in these all
weights are fitted together. What is left are small parts of the rows outside B, by which rows that were measured by
gradients are off. Along a direction q outside B no unit changes, however long the step h is, and the answer moves by

    f(x + h q) − f(x) = h Σ_j u_j (w_j·q),    u_j = ∂f/∂z_j in the cell of x.

The rounding of an answer grows no faster than its terms do, so that a step much longer than x gives w_j·q as well as
the arithmetic allows. Cells with different u are a regression with one and the same design for every q.
"""

from __future__ import annotations

import numpy as np

from neurecover.data import Whitening
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.span import choose_cells
from neurecover.queries.weighted import Outside


def measure_outside(box: Box, network: DeepNetwork, rng: np.random.Generator) -> tuple[DeepNetwork, Outside]:
    """Return the network with its first rows, nearly right, measured anew outside their span, and their errors."""
    network = network.normal_form()
    options, basis, p = box.options.deep, _span(network), network.n_outputs
    d, k = basis.shape
    rest = np.linalg.qr(np.column_stack([basis, rng.standard_normal((d, d - k))]))[0][:, k:]
    count = int(np.ceil(options.outside_answers * k / (2 * p))) + k // 2 + 1
    points, U = choose_cells(network, count, rng, np.zeros((0, p, k)))
    points = points @ basis @ basis.T  # nearer, which no unit notices
    longest = options.outside_step * np.sqrt(d) * max(1.0, box.scale / box.growth)
    # Of many lengths, because terms of the same size are rounded alike.
    steps = longest * rng.uniform(0.5, 1.0, (len(points), d - k, 1))
    # There and back, so that what the weights above are off by drops out.
    both = np.stack([steps * rest.T, -steps * rest.T], axis=1)
    X = box.round_queries((points[:, None, None] + both).reshape(-1, d))
    Y, S = box(X), np.einsum("cpi,cpj->ij", U, U)
    for _ in range(options.outside_rounds):
        left = (Y - network(X)).reshape(len(points), 2, d - k, p)
        left = (left[:, 0] - left[:, 1]) / (2.0 * steps)
        moved = np.linalg.solve(S, np.einsum("cpk,cmp->km", U, left))
        (W, b), *above = network.layers
        network = DeepNetwork([(W + moved @ rest.T, b), *above])
    left = left - np.einsum("cpk,km->cmp", U, moved)
    # The jackknife over cells, whose outputs are rounded together: where one cell alone shows a unit well, its own
    # residual says nothing. Its variances are too large by one over the usual share 1 − k/n of a residual.
    inverse = np.linalg.inv(S)
    wider = np.linalg.pinv(np.eye(p) - np.einsum("cpi,ij,cqj->cpq", U, inverse, U), hermitian=True)
    scores = np.einsum("cpk,cpq,cmq->cmk", U, wider, left)
    meat = np.einsum("cmi,cmj->ij", scores, scores) / (d - k) * (1.0 - k / (len(points) * p))
    whitening = box.whitening or Whitening(np.zeros(d), np.eye(d))
    basis = _span(network)
    beside = whitening.matrix - whitening.matrix @ basis @ basis.T
    return network, Outside(basis, beside, whitening.mean, inverse @ meat @ inverse)


def _span(network: DeepNetwork) -> np.ndarray:
    """Return an orthonormal basis (d, k) of the first layer's rows."""
    return np.asarray(np.linalg.qr(network.layers[0][0].T)[0])
