"""Masks that locate the weights of a network among its parameters, in the order of `models.parameters`."""

from __future__ import annotations

import numpy as np

from neurecover.models import DeepNetwork, Network

Layered = Network | DeepNetwork


def rows_of(normal: Layered) -> list[np.ndarray]:
    """Return, for every hidden unit, the positions of its weights, without the bias, among the parameters."""
    rows, start = [], 0
    for W, b in normal.layers[:-1]:
        rows += [np.arange(start + j * W.shape[1], start + (j + 1) * W.shape[1]) for j in range(len(W))]
        start += W.size + b.size
    return rows


def bias_of(normal: Layered, unit: int) -> int:
    start = 0
    for W, b in normal.layers[:-1]:
        if unit < len(W):
            return start + W.size + unit
        start, unit = start + W.size + b.size, unit - len(W)
    raise IndexError(unit)


def affine_columns(normal: Layered, rare: np.ndarray) -> np.ndarray:
    """Return a mask of the parameters: the weights of C on inputs that are rare (k, d) for any unit."""
    masks = {name: np.zeros(array.shape, dtype=bool) for name, array in normal.arrays.items()}
    if normal.C is not None:
        masks["C"][:] = rare.any(axis=0)
    return np.concatenate([mask.ravel() for mask in masks.values()])


def columns_above(normal: Layered, units: np.ndarray) -> np.ndarray:
    """Return a mask of the parameters: the weights with which the layer above reads the given hidden units."""
    masks = {name: np.zeros(array.shape, dtype=bool) for name, array in normal.arrays.items()}
    readers, unit = [mask for name, mask in masks.items() if mask.ndim == 2 and name != "C"][1:], 0
    for W, above in zip(normal.hidden_weights, readers):
        above[:, units[unit : unit + len(W)]] = True
        unit += len(W)
    return np.concatenate([mask.ravel() for mask in masks.values()])


def constants_above(normal: Layered, units: np.ndarray) -> np.ndarray:
    """Return a mask of the parameters: the biases of the layers above the given hidden units, and C."""
    masks = {name: np.zeros(array.shape, dtype=bool) for name, array in normal.arrays.items()}
    biases, unit = [mask for name, mask in masks.items() if mask.ndim == 1], 0
    for W, above in zip(normal.hidden_weights, biases[1:]):
        above[:] = units[unit : unit + len(W)].any()
        unit += len(W)
    if normal.C is not None:
        masks["C"][:] = units.any()
    return np.concatenate([mask.ravel() for mask in masks.values()])
