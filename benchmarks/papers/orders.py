"""Which networks do Hermite tensors of low order identify? [ATV21] proves orders up to 4 for k ≤ d and 6 for k ≤ d²/2.

The tensors of orders 2 to J hold Σ_{j=2}^J C(d+j−1, j) numbers, and k units have k (d + 1) of them: the counting limit is
their ratio. Whether it is reached is seen from the rank of the derivative of

    (w_i, b_i, a_i)  →  T_j = Σ_i a_i h_j(b_i) w_i^{⊗j},    ∂T_j/∂b = a h_{j+1}(b) w^{⊗j},   ∂T_j/∂w·u = j a h_j(b) sym(w^{⊗(j−1)} ⊗ u),

at a random network: full rank means that no others are near. Far ones are looked for by least squares on the tensors
from random starts: those that end with a residual of rounding are the network itself or another with the same tensors.
Signs of (w, b), which orders from 2 on do not see, are left out of the comparison.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from math import comb, factorial
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, linear_sum_assignment

from neurecover.activations import get
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.simulate import matrices

RELU = get("relu")
INPUTS, HIGHEST = (2, 3, 4, 5), (4, 6)
LARGEST = 260  # weights of a derivative whose rank is taken
SEARCHED = 24  # weights up to which other networks are looked for: random starts find larger ones too rarely
STARTS, NETWORKS = 10, 2
FITTED, SAME = 1e-10, 1e-4  # relative residual of rounding; error of the weights of a network that is the same


class Tensors:
    """T_2 … T_J of units in orthonormal coordinates √(j!/α!) w^α of symmetric tensors, over √j! as in the risk."""

    def __init__(self, d: int, highest: int) -> None:
        self.d, self.powers = d, {}
        for j in range(2, highest + 1):
            sets = combinations_with_replacement(range(d), j)
            alpha = np.array([np.bincount(chosen, minlength=d) for chosen in sets])
            scale = np.array([1.0 / np.sqrt(np.prod([factorial(a) for a in row])) for row in alpha])
            self.powers[j] = (alpha, scale)

    @property
    def size(self) -> int:
        return sum(len(alpha) for alpha, _ in self.powers.values())

    def at(self, W: np.ndarray, b: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all entries, and their derivatives by the rows of W, by b and by a, (size, k (d + 2))."""
        h = RELU.hermite(b, max(self.powers) + 1)
        values, slopes = [], []
        for j, (alpha, scale) in self.powers.items():
            power = scale[:, None] * np.prod(W.T[None] ** alpha[:, :, None], axis=1)  # (entries, k)
            values.append(power @ (a * h[j]))
            by_w = [
                alpha[:, [i]] * scale[:, None] * np.prod(W.T[None] ** np.maximum(alpha - e, 0)[:, :, None], axis=1)
                for i, e in enumerate(np.eye(self.d, dtype=int))
            ]
            by_w = np.stack(by_w, axis=2) * (a * h[j])[None, :, None]
            slopes.append(np.hstack([by_w.reshape(len(alpha), -1), power * (a * h[j + 1]), power * h[j]]))
        return np.concatenate(values), np.vstack(slopes)


def draw_units(rng: np.random.Generator, k: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrices.unit_rows(rng, k, d), rng.normal(0.0, 0.7, k), rng.choice([-1.0, 1.0], k) * rng.uniform(0.5, 1.5, k)


def rank_is_full(d: int, k: int, highest: int, rng: np.random.Generator) -> bool:
    """Tell whether the derivative at a random network has rank k (d + 1), one less per unit than its columns."""
    W, b, a = draw_units(rng, k, d)
    tensors = Tensors(d, highest)
    if k * (d + 1) > tensors.size:
        return False
    slopes = tensors.at(W, b, a)[1]
    # Tangents of the sphere alone: d − 1 per unit.
    tangents = [np.linalg.svd(w[None])[2][1:].T for w in W]
    own = [slopes[:, i * d : (i + 1) * d] @ T for i, T in enumerate(tangents)]
    columns = np.hstack([*own, slopes[:, k * d :]])
    spectrum = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), compute_uv=False)
    return bool(spectrum[-1] > 1e-10 * spectrum[0])  # rounding is 1e-16, and what was seen is above 1e-7


def search(d: int, k: int, highest: int, seed: int) -> tuple[int, int]:
    """Return how many of the starts fit the tensors of a random network, and how many of those are another network."""
    rng = np.random.default_rng([seed, d, k, highest])
    tensors = Tensors(d, highest)
    truth = draw_units(rng, k, d)
    wanted = tensors.at(*truth)[0]

    def split(v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        V = v[: k * d].reshape(k, d)
        length = np.linalg.norm(V, axis=1)
        return V / length[:, None], v[k * d : k * d + k], v[k * d + k :], length

    def residual(v: np.ndarray) -> np.ndarray:
        W, b, a, _ = split(v)
        return tensors.at(W, b, a)[0] - wanted

    def derivative(v: np.ndarray) -> np.ndarray:
        W, b, a, length = split(v)
        slopes = tensors.at(W, b, a)[1]
        by_w = slopes[:, : k * d].reshape(-1, k, d)
        by_w = (by_w - np.einsum("nkd,kd->nk", by_w, W)[:, :, None] * W) / length[:, None]
        return np.hstack([by_w.reshape(len(slopes), -1), slopes[:, k * d :]])

    fitted = other = 0
    for _ in range(STARTS):
        W, b, a = draw_units(rng, k, d)
        start = np.concatenate([W.ravel(), b, a])
        found = least_squares(residual, start, derivative, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=400)
        if np.linalg.norm(found.fun) < FITTED * np.linalg.norm(wanted):
            fitted += 1
            other += _distance(split(found.x)[:3], truth) > SAME
    return fitted, other


def _distance(found: tuple[np.ndarray, ...], truth: tuple[np.ndarray, ...]) -> float:
    """Return the largest error of a unit (w, b, a) up to its sign, for the best pairing."""
    rows = [np.column_stack([W, b]) for W, b, _ in (found, truth)]
    gaps = np.minimum(*(np.linalg.norm(rows[0][:, None] - s * rows[1][None], axis=2) for s in (1.0, -1.0)))
    gaps = gaps + np.abs(found[2][:, None] - truth[2][None])
    return float(gaps[linear_sum_assignment(gaps)].max())


def run_orders(track: Track) -> Iterator[Row]:
    """Measure for every d and J the largest k with a derivative of full rank, and other networks at smaller k."""
    for highest in HIGHEST:
        for d in track(INPUTS, f"tensors up to order {highest}"):
            proved = d if highest == 4 else comb(d + 1, 2)
            counted = Tensors(d, highest).size // (d + 1)
            for k in range(1, counted + 1):
                weights = k * (d + 1)
                if weights > LARGEST or (weights > SEARCHED and k < counted - 2 and k != proved):
                    continue
                full = all(rank_is_full(d, k, highest, np.random.default_rng(seed)) for seed in fresh_seeds(2))
                searched = full and weights <= SEARCHED
                found = [search(d, k, highest, seed) for seed in fresh_seeds(NETWORKS)] if searched else []
                row: Row = {"orders": f"2 to {highest}", "d": d, "k": k, "proved up to": proved, "counting": counted}
                row |= {"full rank": int(full), "starts": STARTS * len(found), "fit": sum(f for f, _ in found)}
                yield row | {"fit, other network": sum(other for _, other in found)}


def draw_orders(rows: list[dict[str, str]], path: Path) -> None:
    """Draw k against d: proved, counting limit, and every k that was looked at by what was found."""
    with picture(path, size=(9, 4.2), ncols=2) as (_, axes):
        for ax, orders in zip(axes, dict.fromkeys(row["orders"] for row in rows)):
            mine = [row for row in rows if row["orders"] == orders]
            kinds: dict[str, list[tuple[int, int]]] = {
                "full rank, no other network found": [],
                "another network fits": [],
                "full rank": [],
                "open": [],
            }
            for row in mine:
                point = (int(row["d"]), int(row["k"]))
                if row["full rank"] == "0":
                    kinds["open"].append(point)
                elif int(row["fit, other network"]):
                    kinds["another network fits"].append(point)
                else:
                    kinds["full rank, no other network found" if int(row["fit"]) else "full rank"].append(point)
            for (kind, points), mark in zip(kinds.items(), ("og", "sC1", ".C0", "xr")):
                if points:
                    ax.plot(*np.transpose(points), mark[0], color=mark[1:], label=kind)
            sizes = sorted({int(row["d"]) for row in mine})
            for name, style in (("proved up to", "--"), ("counting", ":")):
                ax.plot(sizes, [next(int(r[name]) for r in mine if int(r["d"]) == d) for d in sizes], style, label=name)
            ax.set(xlabel="inputs d", ylabel="units k", yscale="log", title=f"orders {orders}", xticks=sizes)
            ax.legend(fontsize=7)


EXPERIMENTS = (
    Experiment("atv21-orders", "[ATV21] Networks that tensors of order ≤ 4 and ≤ 6 identify", run_orders, draw_orders),
)
