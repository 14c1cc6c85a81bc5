"""Where the weights of a network are among its parameters, in the order of `models.parameters`."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.information.normal_form import by_name, hidden_names
from neurecover.models import DeepNetwork, Network

Layered = Network | DeepNetwork


def rows_of(normal: Layered) -> list[np.ndarray]:
    """Return, for every hidden unit, the positions of its weights, without the bias."""
    places = by_name(normal, np.arange(normal.n_parameters))
    return [row for name in hidden_names(normal)[::2] for row in places[name]]


def biases_of(normal: Layered) -> np.ndarray:
    """Return the positions of the biases of all hidden units, (units,)."""
    places = by_name(normal, np.arange(normal.n_parameters))
    return np.concatenate([places[name] for name in hidden_names(normal)[1::2]])


def affine_columns(normal: Layered, rare: np.ndarray) -> np.ndarray:
    """Return a mask of the parameters: the weights of C on inputs that are rare (k, d) for any unit."""
    mask = np.zeros(normal.n_parameters, dtype=bool)
    if normal.C is not None:
        by_name(normal, mask)["C"][:] = rare.any(axis=0)
    return mask


def columns_above(normal: Layered, units: np.ndarray) -> np.ndarray:
    """Return a mask of the parameters: the weights with which the layer above reads the given hidden units."""
    mask = np.zeros(normal.n_parameters, dtype=bool)
    for (above, _), own in _above(normal, mask, units):
        above[:, own] = True
    return mask


def constants_above(normal: Layered, units: np.ndarray) -> np.ndarray:
    """Return a mask of the parameters: the biases of the layers above the given hidden units, and C."""
    mask = np.zeros(normal.n_parameters, dtype=bool)
    for (_, constant), own in _above(normal, mask, units):
        constant[:] = own.any()
    if normal.C is not None:
        by_name(normal, mask)["C"][:] = units.any()
    return mask


def _above(normal: Layered, mask: np.ndarray, units: np.ndarray) -> list[tuple[list[np.ndarray], np.ndarray]]:
    """Return, for every hidden layer, views of the mask (weights, constants) of the layer above, and its own units."""
    views = [view for name, view in by_name(normal, mask).items() if name != "C"]
    own = np.split(units, np.cumsum([len(W) for W in normal.hidden_weights])[:-1])
    return list(zip([views[i : i + 2] for i in range(2, len(views), 2)], own))
