"""[GP18, Theorems 8, 9 and 10]: lowest layers of a known structure, from low-order moments alone."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from neurecover.algorithms.gp18.cliques import correlation_cliques
from neurecover.algorithms.gp18.even import even_units
from neurecover.algorithms.gp18.exponential import exponential_cliques, exponential_units
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.experiment import Experiment, Row, Track
from neurecover.reproduce.gp18 import SEEDS, cosines
from neurecover.simulate import matrices
from neurecover.simulate.composites import products
from neurecover.statistics import HermiteSums
from neurecover.tensors import unpack


def structure(track: Track) -> list[Row]:
    """Measure the settings of Theorems 8, 9 and 10, n = 100,000."""
    rows: list[Row] = []
    for seed in track(SEEDS, "structure"):
        rng = np.random.default_rng(seed)
        W = _disjoint(rng, 4, 3, 12)
        X = rng.standard_normal((100_000, 12))
        f = products(4)(np.exp(0.6 * (X @ W.T - 4.0)))
        second = reduce(ArraySource(X, f), HermiteSums(12, 1, 2)).coefficients().packed(2)[0]
        rows.append(_exact("Theorem 8", seed, _same(correlation_cliques(unpack(second, 12, 2)).W, W)))
        W = _disjoint(rng, 3, 2, 8)
        X = rng.standard_normal((100_000, 8))
        f = products(3, product=0.5)(np.exp(X @ W.T))
        rows.append(_exact("Theorem 9, simplex", seed, _same(exponential_units(ArraySource(X, f), rng).W, W)))
        rows.append(_exact("Theorem 9", seed, _same(exponential_cliques(ArraySource(X, f)).W, W)))
        W = matrices.orthonormal(rng, 4, 6)
        X = rng.standard_normal((100_000, 6))
        f = products(4)(np.abs(X @ W.T))
        fourth = reduce(ArraySource(X, f), HermiteSums(6, 1, 4)).coefficients().packed(4)[0]
        worst = float(cosines(even_units(fourth, 6, 4, rng, sign=-1.0).W, W).min())
        rows.append({**_exact("Theorem 10", seed, worst >= 0.99), "worst cos": worst})
    return rows


def exponential_sizes(track: Track) -> list[Row]:
    """Measure Theorem 9: k units of `size` inputs each among d, products with coefficient 0.5, n = 100,000."""
    rows: list[Row] = []
    for d, k, size in ((8, 3, 2), (12, 4, 3), (12, 6, 2), (12, 3, 4), (16, 4, 4), (16, 5, 3)):
        hits = {"cliques": 0, "simplex": 0}
        for seed in track(SEEDS, f"Theorem 9, d = {d}, {k} units of {size}"):
            rng = np.random.default_rng([seed, d, k])
            W = _disjoint(rng, k, size, d)
            X = rng.standard_normal((100_000, d))
            source = ArraySource(X, products(k, product=0.5)(np.exp(X @ W.T)))
            with suppress(UnsolvableError):
                hits["cliques"] += _same(exponential_cliques(source).W, W)
            with suppress(UnsolvableError):
                hits["simplex"] += _same(exponential_units(source, rng).W, W)
        rows.append({"d": d, "k": k, "inputs of a unit": size, "seeds": len(SEEDS), **hits})
    return rows


def _disjoint(rng: np.random.Generator, k: int, size: int, d: int) -> np.ndarray:
    """Draw k disjoint 0/1 rows with `size` ones each."""
    W = np.zeros((k, d))
    W[np.repeat(np.arange(k), size), rng.permutation(d)[: k * size]] = 1.0
    return W


def _same(found: np.ndarray, truth: np.ndarray) -> bool:
    return found.shape == truth.shape and sorted(map(tuple, found)) == sorted(map(tuple, truth))


def _exact(theorem: str, seed: int, hit: bool) -> Row:
    return {"theorem": theorem, "seed": seed, "recovered": hit, "worst cos": "", "required": "19 of 20"}


EXPERIMENTS = (
    Experiment("gp18-structure", "Theorems 8, 9 and 10", structure),
    Experiment("gp18-exponential", "Theorem 9 at several sizes", exponential_sizes),
)
