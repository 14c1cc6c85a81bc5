"""The network of the layers below one that could not be found.

The rows of these layers were measured, and nothing is known of the layers above. A linear layer on top of the highest
of them, fitted to a few answers, stands in for these, so that the network can be used, saved and compared.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.fits.output import answer_sizes
from neurecover.queries.deep.layers import Reached
from neurecover.queries.extraction import Extraction


def describe_reached(box: Box, reached: Reached, reason: str, rng: np.random.Generator) -> Extraction:
    """Return the network of the layers reached; `reason` says why the one above them is missing."""
    p, k = box.n_outputs, len(reached.layers[-1][1])
    bottom = DeepNetwork([*reached.layers, (np.zeros((p, k)), np.zeros(p))])
    n = int(min(box.options.deep.unfinished * (k + 1), box.affordable))
    X = box.limits.pull_inside(rng.standard_normal((n, box.n_inputs)))
    with box.counting("output layer"):
        Y = box(X) if n else np.zeros((0, p))
    residual, network = 1.0, bottom
    if n > k + 1:
        features = np.column_stack([bottom.hidden(X)[-1], np.ones(n)])
        top = np.linalg.lstsq(features, Y, rcond=None)[0]
        network = DeepNetwork([*reached.layers, (top[:-1].T, top[-1])])
        residual = float((np.abs(network(X) - Y).max(axis=1) / answer_sizes(Y)).max())
    found = [
        f"hidden layer {number} with {len(b)} units, their rows known to {errors.max(initial=0.0):.1e}"
        for number, ((_, b), errors) in enumerate(zip(reached.layers, reached.errors), start=1)
    ]
    above = len(reached.layers) + 1
    instead = "zero" if network is bottom else f"the best linear one on top of layer {above - 1}"
    sentence = (
        f"Found were {', and '.join(found)}; what is above was not. {reason} The output layer of the network is only "
        f"{instead}, in place of layer {above} and all above it."
    )
    errors = np.concatenate(reached.errors)
    return Extraction(network, box.queries, residual, box.resolution, False, errors, (sentence,))
