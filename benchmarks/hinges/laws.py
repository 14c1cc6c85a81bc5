"""Broken lines to be found: laws, noise, and the Cramér–Rao deviation of their breaks."""

from __future__ import annotations

import numpy as np

Samples = tuple[np.ndarray, np.ndarray]
LAWS: dict[int, tuple[list[float], list[float]]] = {
    0: ([], []),
    1: ([4.0], [1.0]),
    2: ([3.0, 7.0], [1.0, -1.5]),
    3: ([2.5, 5.0, 7.5], [1.5, -1.5, 1.5]),
}


def law(x: np.ndarray, breaks: list[float], changes: list[float]) -> np.ndarray:
    """Return 1 + x/2 and the hinges."""
    return 1.0 + 0.5 * x + np.maximum(x[:, None] - np.array(breaks), 0.0) @ np.array(changes)


def slopes_of(K: int) -> np.ndarray:
    """Return the slopes of the K + 1 segments."""
    return 0.5 + np.concatenate([[0.0], np.cumsum(LAWS[K][1])])


def draw(seed: int, K: int, noise: float, n: int) -> Samples:
    """Draw n rows of the law with K breaks, inputs uniform on 0 to 10."""
    rng = np.random.default_rng([seed, K, n])
    x = rng.uniform(0.0, 10.0, n)
    return x, law(x, *LAWS[K]) + noise * rng.standard_normal(n)


def draw_noise(kind: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return noise of about one: plain, t with 3 degrees of freedom, with a variance that grows 81-fold, or AR(1)."""
    if kind == "t3":
        return rng.standard_t(3, len(x))
    noise = rng.standard_normal(len(x))
    if kind == "unequal":
        return noise * (1.0 + 0.8 * x) / 5.0
    if kind == "AR(1) 0.5":
        for i in range(1, len(x)):
            noise[i] = 0.5 * noise[i - 1] + 0.75**0.5 * noise[i]
    return noise


def cramer_rao(x: np.ndarray, K: int, noise: float) -> np.ndarray:
    """Return the deviations of the breaks that no unbiased estimate goes below."""
    breaks, changes = (np.array(values) for values in LAWS[K])
    above = x[:, None] > breaks
    J = np.column_stack([np.ones(len(x)), x, np.maximum(x[:, None] - breaks, 0.0), -changes * above])
    return noise * np.sqrt(np.diag(np.linalg.inv(J.T @ J)))[2 + K :]
