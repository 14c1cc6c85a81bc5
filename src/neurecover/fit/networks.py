"""Networks of fits: units that no sample switches lie away from the samples."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from neurecover.fit.point import Point
from neurecover.models import DeepNetwork, Network, as_network, network_of


def away_from_samples(network: Network | DeepNetwork, lowest: np.ndarray, highest: np.ndarray) -> Network | DeepNetwork:
    """Return the network with units that no sample switches moved so far that others will not either.

    lowest and highest are the ends of every unit's preactivations, layer by layer. Where the kink of such a unit lies
    is unknown. One that is on for every sample is a linear function of them: its bias grows by t, and the constant of
    what reads it shrinks by its weight times t. One that is off for every sample adds nothing, and the weights that
    read it become zero.
    """
    act = network.activation
    on, off = lowest > 0.0, highest <= 0.0
    if act.homogeneity != 1.0 or not act.odd_slope or not (on | off).any():
        return network
    layers, start = [(W.copy(), b.copy()) for W, b in network.layers], 0
    for (W, b), (above, constant) in pairwise(layers):
        own = slice(start, start + len(W))
        start = own.stop
        shift = np.where(on[own], highest[own], 0.0)
        b += shift
        constant -= above @ shift  # act(z + t) = act(z) + t where z > 0
        if act.odd_slope == 1.0:
            above[:, off[own]] = 0.0
    return network_of(layers, act, network.C)


def fitted_network(point: Point) -> Network | DeepNetwork:
    """Return the network of a fit, units that no sample switches moved away from them."""
    network = as_network(point.student)
    if not point.student.bias:
        return network
    F = point.samples.F
    Z = np.hstack([np.zeros((len(F), 0)), *network.preactivations(F[:, 1:])])
    return away_from_samples(network, Z.min(axis=0, initial=np.inf), Z.max(axis=0, initial=-np.inf))
