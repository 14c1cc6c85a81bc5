"""Symmetric tensors stored by their distinct entries.

A symmetric tensor T of order j in r dimensions has C(r + j − 1, j) distinct entries, one for every sorted index
tuple i₁ ≤ … ≤ i_j; they are kept in lexicographic order of the tuples. Entry α stands for

    mult(α) = j! / ∏ₘ αₘ!      (αₘ the number of times that m occurs in the tuple)

entries of the full array, so ⟨S, T⟩_F = Σ_α mult(α) S_α T_α. Multiplied by √mult(α) the entries are coordinates
in an orthonormal basis of the symmetric tensors: norms, inner products and singular values of flattenings
are then those of the full arrays, at a fraction of the size. For order 2, `pack` is the vec* of [GKLW19] and
`unpack` its inverse mat*; the factor 2 of the off-diagonal entries is `multiplicities`.

Leading axes of a packed array are batch axes throughout.
"""

from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial

import numpy as np


def n_packed(r: int, order: int) -> int:
    """Return C(r + order − 1, order), the number of distinct entries."""
    return comb(r + order - 1, order)


@lru_cache(maxsize=64)
def indices(r: int, order: int) -> np.ndarray:
    """Return the sorted index tuples, one per row, (n_packed, order)."""
    tuples = np.array(list(combinations_with_replacement(range(r), order)), dtype=np.intp)
    return _frozen(tuples.reshape(n_packed(r, order), order))


@lru_cache(maxsize=64)
def multiplicities(r: int, order: int) -> np.ndarray:
    """Return how many entries of the full tensor each packed entry stands for."""
    tuples = indices(r, order)
    # Divide by m at the m-th occurrence of an index in its tuple; the product of these m is ∏ α!.
    repetition = np.ones(len(tuples))
    divisor = np.ones(len(tuples))
    for place in range(1, order):
        repetition = np.where(tuples[:, place] == tuples[:, place - 1], repetition + 1.0, 1.0)
        divisor *= repetition
    return _frozen(np.rint(factorial(order) / divisor))


@lru_cache(maxsize=64)
def root_multiplicities(r: int, order: int) -> np.ndarray:
    """Return the factors that turn packed entries into orthonormal coordinates."""
    return _frozen(np.sqrt(multiplicities(r, order)))


def pack(tensor: np.ndarray, order: int) -> np.ndarray:
    """Return the distinct entries of a symmetric tensor in the last `order` axes: (…, r, …, r) to (…, n_packed)."""
    tensor = np.asarray(tensor)
    sides = set(tensor.shape[tensor.ndim - order :])
    if order < 1 or tensor.ndim < order or len(sides) != 1:
        raise ValueError(
            f"pack needs {max(order, 1)} equal trailing axes for order {order}. Got shape {tensor.shape} instead."
        )
    return tensor[(..., *indices(sides.pop(), order).T)]


def unpack(packed: np.ndarray, r: int, order: int) -> np.ndarray:
    """Return the full tensor (…, r, …, r) of the packed entries (…, n_packed)."""
    packed = checked(packed, r, order)
    return packed[..., _positions(r, (1,) * order)] if order else packed[..., 0]


def flatten(packed: np.ndarray, r: int, split: tuple[int, ...]) -> np.ndarray:
    """Return flatten(T, ℓ₁, ℓ₂, …) of [ATV21, §1.1], with each group of axes in orthonormal coordinates.

    The result has shape (…, n_packed(r, ℓ₁), n_packed(r, ℓ₂), …). For T = Σ aᵢ wᵢ^{⊗j} it is Σ aᵢ p₁(wᵢ) ⊗ p₂(wᵢ) ⊗ …
    with p(w) = `symmetric_power(w, ℓ)`; a matrix flattening has the singular values of the paper's matrix.
    """
    packed = checked(packed, r, sum(split))
    out = packed[..., _positions(r, split)]
    for axis, ell in enumerate(reversed(split)):
        out = out * root_multiplicities(r, ell).reshape(-1, *(1,) * axis)
    return out


def whitened(packed: np.ndarray, B: np.ndarray, order: int) -> np.ndarray:
    """Return T(B, …, B), packed in the k dimensions of B (r, k)."""
    full = unpack(packed, len(B), order)
    for _ in range(order):
        # The contracted axis becomes the last one, so after `order` steps every axis has been contracted.
        full = np.tensordot(full, B, axes=(0, 0))
    return pack(full, order)


def monomials(W: np.ndarray, order: int) -> np.ndarray:
    """Return the packed entries of w^{⊗order} for every row w of W (k, r): (k, n_packed)."""
    return ladder(W, order)[-1]


def ladder(W: np.ndarray, highest: int) -> list[np.ndarray]:
    """Return `monomials` of the orders 0 to `highest`, each from the order before by one more index."""
    steps = [np.ones((*W.shape[:-1], 1))]
    for j in range(1, highest + 1):
        first, rest = _continued(W.shape[-1], j)
        steps.append(W.take(first, axis=-1) * steps[-1].take(rest, axis=-1))
    return steps


def symmetric_power(W: np.ndarray, order: int) -> np.ndarray:
    """Return w^{⊗order} in orthonormal coordinates, for every row of W: p(u)·p(v) = (u·v)^order."""
    return monomials(W, order) * root_multiplicities(W.shape[-1], order)


def rank_one(W: np.ndarray, order: int, weights: np.ndarray) -> np.ndarray:
    """Return Σᵢ weightsᵢ wᵢ^{⊗order}, packed, for weights (…, k) and W (k, r)."""
    return weights @ monomials(W, order)


def inner(first: np.ndarray, second: np.ndarray, r: int, order: int) -> np.ndarray:
    """Return ⟨S, T⟩_F of two packed tensors."""
    return np.sum(multiplicities(r, order) * first * second, axis=-1)


def checked(packed: np.ndarray, r: int, order: int) -> np.ndarray:
    """Return the packed array after checking that its last axis has the length n_packed(r, order)."""
    packed = np.asarray(packed, dtype=float)
    if packed.ndim == 0 or packed.shape[-1] != n_packed(r, order):
        raise ValueError(
            f"A packed symmetric tensor of order {order} in {r} dimensions has {n_packed(r, order)} entries along its "
            f"last axis. Got shape {packed.shape} instead."
        )
    return packed


@lru_cache(maxsize=64)
def _continued(r: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first index of every sorted tuple, and the position of its rest in the list of one order less.

    The index i may be followed by tuples whose first index is at least i: the tail of the shorter list.
    """
    tails = [n_packed(r - i, order - 1) for i in range(r)]
    rest = [np.arange(n_packed(r, order - 1) - tail, n_packed(r, order - 1)) for tail in tails]
    return _frozen(np.repeat(np.arange(r), tails)), _frozen(np.concatenate(rest))


@lru_cache(maxsize=64)
def _positions(r: int, split: tuple[int, ...]) -> np.ndarray:
    """Return, for each entry of the flattened tensor, its position in the packed one."""
    order = sum(split)
    groups = [indices(r, ell) for ell in split]
    grid = np.zeros((*(len(g) for g in groups), order), dtype=np.intp)
    start = 0
    for axis, group in enumerate(groups):
        shape = [1] * len(groups) + [group.shape[1]]
        shape[axis] = len(group)
        grid[..., start : start + group.shape[1]] = group.reshape(shape)
        start += group.shape[1]
    grid.sort(axis=-1)
    # Read as digits in base r, sorted tuples keep their lexicographic order.
    base = r ** np.arange(order - 1, -1, -1)
    return _frozen(np.searchsorted(indices(r, order) @ base, grid @ base))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
