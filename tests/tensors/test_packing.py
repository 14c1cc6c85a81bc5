"""Packed symmetric tensors against the full arrays they stand for."""

from functools import reduce
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest

from neurecover.statistics.moments.hermite import root_factorials
from neurecover.tensors import (
    flatten,
    indices,
    inner,
    monomials,
    multiplicities,
    n_packed,
    pack,
    rank_one,
    symmetric_power,
    unpack,
)

SIZES = [(r, order) for r in (1, 2, 3, 5) for order in range(1, 7) if r**order < 5000]


def power(w: np.ndarray, order: int) -> np.ndarray:
    return reduce(np.multiply.outer, [w] * order)


def full_sum(W: np.ndarray, order: int, weights: np.ndarray) -> np.ndarray:
    return sum(a * power(w, order) for a, w in zip(weights, W))


def planted(seed: int, r: int, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((k, r)), rng.standard_normal(k)


@pytest.mark.parametrize(("r", "order"), SIZES)
def test_the_order_is_that_of_sorted_tuples(r: int, order: int) -> None:
    expected = list(combinations_with_replacement(range(r), order))
    assert [tuple(row) for row in indices(r, order)] == expected
    assert n_packed(r, order) == len(expected)
    counts = [len(set(permutations(t))) for t in expected]
    np.testing.assert_array_equal(multiplicities(r, order), counts)


@pytest.mark.parametrize(("r", "order"), [(1, 3), (3, 4), (6, 2), (5, 5)])
def test_the_order_is_that_of_the_hermite_coefficients(r: int, order: int) -> None:
    # mult(α)·α! = j!, and the statistics hold √α! entry by entry
    product = multiplicities(r, order) * root_factorials(r, order) ** 2
    np.testing.assert_allclose(product, np.prod(np.arange(1.0, order + 1)), rtol=1e-14)


@pytest.mark.parametrize(("r", "order"), SIZES)
def test_rank_one_sums_are_those_of_the_full_tensor(r: int, order: int) -> None:
    W, a = planted(order, r)
    full = full_sum(W, order, a)
    np.testing.assert_allclose(rank_one(W, order, a), pack(full, order), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(unpack(rank_one(W, order, a), r, order), full, rtol=1e-13, atol=1e-13)


def test_order_zero_is_the_sum_of_the_weights() -> None:
    W, a = planted(0, 4)
    np.testing.assert_allclose(rank_one(W, 0, a), [a.sum()])
    assert unpack(np.array([2.5]), 4, 0) == 2.5


@pytest.mark.parametrize(("r", "order"), SIZES)
def test_packing_undoes_unpacking_with_leading_axes(r: int, order: int) -> None:
    packed = np.random.default_rng(0).standard_normal((2, 3, n_packed(r, order)))
    full = unpack(packed, r, order)
    assert full.shape == (2, 3, *(r,) * order)
    np.testing.assert_array_equal(pack(full, order), packed)
    np.testing.assert_array_equal(full, np.swapaxes(full, 2, full.ndim - 1))


@pytest.mark.parametrize(("r", "order"), SIZES)
def test_inner_products_are_frobenius(r: int, order: int) -> None:
    rng = np.random.default_rng(1)
    S, T = rng.standard_normal((2, n_packed(r, order)))
    expected = np.vdot(unpack(S, r, order), unpack(T, r, order))
    np.testing.assert_allclose(inner(S, T, r, order), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", range(6))
def test_symmetric_powers_multiply_like_the_angles(order: int) -> None:
    rng = np.random.default_rng(2)
    U, V = rng.standard_normal((2, 4, 5))
    products = symmetric_power(U, order) @ symmetric_power(V, order).T
    np.testing.assert_allclose(products, (U @ V.T) ** order, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("split", [(1, 1, 1), (2, 1), (1, 3), (2, 2, 1), (2, 2, 2), (3, 2), (0, 3)])
def test_flattening_a_rank_one_tensor_gives_the_product_of_its_powers(split: tuple[int, ...]) -> None:
    W, a = planted(4, 3, k=1)
    order = sum(split)
    expected = a[0] * reduce(np.multiply.outer, [symmetric_power(W, ell)[0] for ell in split])
    np.testing.assert_allclose(flatten(rank_one(W, order, a), 3, split), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("order", "ell"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_flattening_has_the_singular_values_of_the_full_array(order: int, ell: int) -> None:
    T = np.random.default_rng(5).standard_normal(n_packed(4, order))
    ours = np.linalg.svd(flatten(T, 4, (ell, order - ell)), compute_uv=False)
    full = np.linalg.svd(unpack(T, 4, order).reshape(4**ell, -1), compute_uv=False)
    np.testing.assert_allclose(full[: len(ours)], ours, rtol=1e-11)
    np.testing.assert_allclose(full[len(ours) :], 0.0, atol=1e-11 * ours[0])


def test_monomials_accept_a_single_vector() -> None:
    W, _ = planted(6, 4)
    np.testing.assert_array_equal(monomials(W, 3)[1], monomials(W[1], 3))


def test_cached_tables_cannot_be_overwritten() -> None:
    with pytest.raises(ValueError, match="read-only"):
        multiplicities(3, 2)[0] = 7.0


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has 10 entries .* Got shape \(9,\) instead"):
        unpack(np.zeros(9), 3, 3)
    with pytest.raises(ValueError, match=r"3 equal trailing axes .* Got shape \(2, 3, 3\) instead"):
        pack(np.zeros((2, 3, 3)), 3)
