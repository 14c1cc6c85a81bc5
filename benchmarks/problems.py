"""Networks to be recovered, for measurements of one engine against another: rows of sizes times families of weights.

A family says how weights are drawn, since what is easy for unit rows may be hard for weights as a trainer begins with:

    unit        rows of norm one; a unit switches 0.7·N(0, 1) standard deviations from the mean of what it adds up
    he          weights N(0, 2/fan in), hidden biases zero, a small constant in the outputs
    orthogonal  rows at right angles, biases 0.5·N(0, 1)
    torch       weights and biases uniform in ±1/√(fan in), as `torch.nn.Linear` draws them

Whatever the family, hidden units are redrawn until each is on in 2 to 98 % of the samples: others are no part of what
the samples show.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr

FAMILIES = ("unit", "he", "orthogonal", "torch")
SEEN = 0.02  # share of the samples on either side of a unit's kink
ACTIVATIONS: dict[str, Any] = {"relu": lambda z: np.maximum(z, 0.0), "tanh": np.tanh, "gelu": lambda z: z * ndtr(z)}


@dataclass(frozen=True)
class Row:
    """Widths from the inputs to the outputs, n samples or `load` per parameter, and what `recover` is told."""

    dims: tuple[int, ...]
    n: int = 0
    load: int = 0
    told: bool = True
    bias: bool = True
    affine: bool = False
    activation: str = "relu"
    noise: float = 0.0

    @property
    def n_samples(self) -> int:
        return self.n or self.load * sum(above * (below + 1) for below, above in pairwise(self.dims))

    @property
    def call(self) -> dict[str, Any]:
        """Return the arguments of `recover`, as JSON holds them."""
        widths = self.dims[1:-1]
        told: dict[str, Any] = {"depth": len(widths)}
        if self.told:
            told = {"n_hidden": widths[0] if len(widths) == 1 else list(widths)}
        return told | {"bias": self.bias, "activation": self.activation} | ({"affine": True} if self.affine else {})


ROWS = {
    "10-10-1 n=1200": Row((10, 10, 1), 1_200),
    "10-10-1 n=600": Row((10, 10, 1), 600),
    "10-10-1 n=360": Row((10, 10, 1), 360),
    "10-10-1 n=1200 width open": Row((10, 10, 1), 1_200, told=False),
    "10-20-1 n=1600": Row((10, 20, 1), 1_600),
    "10-10-10 n=100 no biases": Row((10, 10, 10), 100, bias=False),
    "30-30-1 n=5000": Row((30, 30, 1), 5_000),
    "50-50-1 n=13000": Row((50, 50, 1), 13_000),
    "10-10-1 n=600 tanh": Row((10, 10, 1), 600, activation="tanh"),
    "10-10-1 n=600 gelu": Row((10, 10, 1), 600, activation="gelu"),
    "10-5-1 n=2000 noise": Row((10, 5, 1), 2_000, noise=0.05),
    "10-5-1 n=2000 noise width open": Row((10, 5, 1), 2_000, noise=0.05, told=False),
    "10-8-6-1 25x": Row((10, 8, 6, 1), load=25),
    "10-10-10-1 40x": Row((10, 10, 10, 1), load=40),
    "20-10-10-1 20x": Row((20, 10, 10, 1), load=20),
    "8-6-5-4-1 60x": Row((8, 6, 5, 4, 1), load=60),
    "6-5-4-1 100x noise": Row((6, 5, 4, 1), load=100, noise=0.05),
    "6-5-4-1 100x noise widths open": Row((6, 5, 4, 1), load=100, noise=0.05, told=False),
    "10-8-6-1 40x widths open": Row((10, 8, 6, 1), load=40, told=False),
    "10-10-1 n=600 affine": Row((10, 10, 1), 600, affine=True),
    "10-8-6-1 25x affine": Row((10, 8, 6, 1), load=25, affine=True),
}


@dataclass(frozen=True)
class Problem:
    """The true layers from the inputs up, the affine term C (p, d) if there is one, and the samples."""

    layers: list[tuple[np.ndarray, np.ndarray]]
    C: np.ndarray | None
    X: np.ndarray
    Y: np.ndarray


def draw(row: Row, family: str, seed: int) -> Problem:
    """Draw a network of the family and samples of it; the same for the same arguments."""
    rng = np.random.default_rng([seed, FAMILIES.index(family), *row.dims])
    H = X = rng.standard_normal((row.n_samples, row.dims[0]))
    layers = []
    for k in row.dims[1:-1]:
        layers.append(_hidden_layer(rng, H, k, family, row.bias))
        H = ACTIVATIONS[row.activation](H @ layers[-1][0].T + layers[-1][1])
    layers.append(_output_layer(rng, H.shape[1], row.dims[-1], family, row.bias))
    Y = H @ layers[-1][0].T + layers[-1][1]
    C = rng.standard_normal((row.dims[-1], row.dims[0])) if row.affine else None
    Y = Y if C is None else Y + X @ C.T
    return Problem(layers, C, X, Y + row.noise * Y.std(axis=0) * rng.standard_normal(Y.shape))


def _hidden_layer(
    rng: np.random.Generator, H: np.ndarray, k: int, family: str, bias: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a layer, and again those units of it that are on in hardly any sample or in nearly all."""
    W, b = _units(rng, H, k, family)
    for _ in range(10_000):
        on = np.mean(H @ W.T + bias * b > 0.0, axis=0)
        unseen = (on < SEEN) | (on > 1.0 - SEEN)
        if not unseen.any():
            return W, bias * b
        # Orthogonal rows belong together; units of the other families are independent of each other.
        again = np.ones(k, dtype=bool) if family == "orthogonal" else unseen
        W[again], b[again] = (array[again] for array in _units(rng, H, k, family))
    raise RuntimeError(f"No layer of {k} units of the family {family} switches on these samples. Try another seed.")


def _units(rng: np.random.Generator, H: np.ndarray, k: int, family: str) -> tuple[np.ndarray, np.ndarray]:
    d = H.shape[1]
    if family == "he":
        return rng.standard_normal((k, d)) * np.sqrt(2.0 / d), np.zeros(k)
    if family == "torch":
        return rng.uniform(-1.0, 1.0, (k, d)) / np.sqrt(d), rng.uniform(-1.0, 1.0, k) / np.sqrt(d)
    if family == "orthogonal":
        Q = np.linalg.qr(rng.standard_normal((max(k, d), min(k, d))))[0]
        return (Q.T if k <= d else Q * np.sqrt(k / d)), 0.5 * rng.standard_normal(k)
    W = rng.standard_normal((k, d))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    Z = H @ W.T
    return W, 0.7 * Z.std(axis=0) * rng.standard_normal(k) - Z.mean(axis=0)


def _output_layer(rng: np.random.Generator, k: int, p: int, family: str, bias: bool) -> tuple[np.ndarray, np.ndarray]:
    if family == "he":
        A, c = rng.standard_normal((p, k)) / np.sqrt(k), 0.1 * rng.standard_normal(p)
    elif family == "torch":
        A, c = rng.uniform(-1.0, 1.0, (p, k)) / np.sqrt(k), rng.uniform(-1.0, 1.0, p) / np.sqrt(k)
    else:
        A, c = rng.uniform(0.5, 1.5, (p, k)) * rng.choice([-1.0, 1.0], (p, k)), 0.7 * rng.standard_normal(p)
    return A, bias * c
