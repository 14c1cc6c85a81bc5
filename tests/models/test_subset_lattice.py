"""Subset sums by lattice reduction: every solution is listed, and nothing else."""

from itertools import product

import numpy as np
import pytest

from neurecover.models.signs import find_subsets
from neurecover.models.subset_lattice import LatticeOptions, lattice_subsets, reduce_lattice


@pytest.mark.parametrize("seed", range(4))
def test_the_list_is_that_of_trying_all(seed: int) -> None:
    # Whole numbers have many subsets of one sum.
    rng = np.random.default_rng(seed)
    columns = rng.integers(-4, 5, (2, 12)).astype(float)
    target = columns @ (rng.random(12) < 0.5)
    every = np.array(list(product([False, True], repeat=12)))
    wanted = every[np.linalg.norm(every @ columns.T - target, axis=1) <= 0.5]
    found = lattice_subsets(columns, target, 0.5)
    assert found is not None
    assert len(found) == len(wanted) > 1
    assert {row.tobytes() for row in found} == {row.tobytes() for row in wanted}


@pytest.mark.parametrize("seed", range(2))
def test_the_signs_of_many_units_are_found_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns, bits = rng.standard_normal((10, 42)), rng.random(42) < 0.5
    noise = rng.standard_normal(10)
    noise *= 3e-12 / np.linalg.norm(noise)
    search = find_subsets(columns, columns @ bits + noise, 1e-12)
    assert search.complete
    np.testing.assert_array_equal(search.flips, bits[None])
    # A target that is no sum of columns has none.
    found = lattice_subsets(columns[:, :25], columns[:, :25] @ bits[:25] + 0.1, 1e-11)
    assert found is not None
    assert len(found) == 0


def test_what_is_too_much_is_given_up() -> None:
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((2, 30))
    target = columns @ (rng.random(30) < 0.5)
    assert lattice_subsets(columns, target, 1e-2, LatticeOptions(most=1_000)) is None
    assert lattice_subsets(columns, target, 1e-9, LatticeOptions(swaps=3)) is None


def test_reduction_keeps_the_lattice_and_shortens_it() -> None:
    rng = np.random.default_rng(0)
    basis = rng.integers(-1000, 1000, (8, 8)).astype(float)
    reduced = basis.copy()
    assert reduce_lattice(reduced, 1_000, 0.99) is not None
    change = np.linalg.solve(basis, reduced)
    # The new basis is the old one times an integer matrix of determinant ±1.
    np.testing.assert_allclose(change, np.rint(change), atol=1e-6)
    assert abs(abs(np.linalg.det(change)) - 1.0) < 1e-6
    # The first vector is at most 2^{(n−1)/4} det^{1/n} long [LLL 1982, (1.9)], with δ = 3/4.
    assert np.linalg.norm(reduced[:, 0]) <= 2 ** (7 / 4) * abs(np.linalg.det(basis)) ** (1 / 8)
