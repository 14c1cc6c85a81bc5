"""The algorithms of [ATV21] on tensors T_j = E[y He_j(x)], each usable by itself and on exact tensors.

For x ~ N(0, I), unit rows w_i and y = Σ_i A_oi act(w_i·x + b_i) + c, [Lemma 3.5]

    T_j[o] = Σ_i A_oi h_j(b_i) w_i^{⊗j},        h_j(b) = (−1)^j He_{j−2}(b) φ(b)  for ReLU and j ≥ 2.

act(z) = g relu(z) + (a linear function) has g times these h_j from order 2 on, so leaky ReLUs go the same way. All
tensors are packed, (p, n_packed(r, j)); ℓ is the number of axes that are flattened into one, 1 for k ≤ r.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network, Student, as_network
from neurecover.tensors import best_weights, flattening_values, joint_diagonalise, network_moments, slices
from neurecover.tensors.overcomplete import directions_of_powers

ROUNDING = 1e-11  # singular values of exact tensors below this part of the largest are zero


@dataclass(frozen=True)
class Units:
    """A (p, k), b (k,), and unit rows W (k, r); (w, b) up to sign unless `fix_signs` made them."""

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray


def population_coefficients(network: Network, orders: tuple[int, ...]) -> dict[int, np.ndarray]:
    """Return the exact T_j of a network, c in order 0 included [ATV21, Lemma 3.5]."""
    live = np.linalg.norm(network.W, axis=1) > 0.0
    constant = network.c + network.A[:, ~live] @ network.activation(network.b[~live])
    units = network.take(np.flatnonzero(live))
    tensors = network_moments(units.W, units.b, units.A, units.activation, orders)
    return {j: T + constant[:, None] if j == 0 else T for j, T in tensors.items()}


def algorithm_1(
    tensors: Mapping[int, np.ndarray], r: int, ell: int, activation: Activation, rng: np.random.Generator
) -> Units:
    """Find all units from exact tensors of orders ℓ to ℓ + 3, 2ℓ + 1 and 2ℓ + 2 [ATV21, Alg. 1]; signs too if ℓ = 1."""
    W = tensor_directions(tensors, r, ell, rng)
    found = recover_scalars(W, tensors, ell, activation)
    return fix_signs(found, tensors[1], activation) if ell == 1 else found


def tensor_directions(
    tensors: Mapping[int, np.ndarray],
    r: int,
    ell: int,
    rng: np.random.Generator,
    *,
    threshold: Mapping[int, float] | None = None,
    most: int | None = None,
    weakest: Mapping[int, float] | None = None,
    faint: float = 1e-7,
    same: float = 1e-2,
    pairs: int = 10,
    max_iterations: int = 100,
) -> np.ndarray:
    """Return the directions ±w_i, unit rows, of T_{2ℓ+1} and T_{2ℓ+2} together [ATV21, Alg. 1, steps 1–4, and Alg. 4].

    A unit is missing from an order where He_{j−2}(b) = 0, and never from both: He_{2ℓ−1} and He_{2ℓ} have no common
    root (Lemma 4.3). threshold[j] is η₁, the least singular value of flatten(T_j, ℓ, j − ℓ) that counts (the text
    prints ℓ + 1 for the second side of both; the sides have to add up to j); without it, rounding. Terms whose norm is
    below weakest[j] are left out (η₂; without it `faint` of the strongest), and of directions that agree up to sign
    within `same` the strongest stays (η₃). pairs=1, max_iterations=0 is Jennrich's algorithm as the paper runs it.
    """
    found, strength = [], []
    for j in (2 * ell + 1, 2 * ell + 2):
        T = np.atleast_2d(tensors[j])
        values = flattening_values({j: T}, r, ell)
        rank = int(np.sum(values > (threshold[j] if threshold else ROUNDING * values[0])))
        rank = rank if most is None else min(rank, most)
        if rank == 0:
            continue
        stack = slices(T, r, j, ell)
        terms = joint_diagonalise(stack, rank, rng, pencils=pairs, polished=2, max_iterations=max_iterations)
        size = np.linalg.norm(terms.weights, axis=0)
        kept = size >= (faint * size.max() if weakest is None else weakest[j])
        found.append(directions_of_powers(terms.V, r, ell)[kept])
        strength.append(size[kept] / size.max())
    if not sum(len(part) for part in found):
        raise UnsolvableError(
            f"The tensors of orders {2 * ell + 1} and {2 * ell + 2} hold nothing above the threshold."
        )
    return distinct(np.vstack(found), np.concatenate(strength), same)


def distinct(W: np.ndarray, strength: np.ndarray, same: float) -> np.ndarray:
    """Return the rows, strongest first, without those within `same` of ± an earlier one."""
    kept: list[np.ndarray] = []
    for i in np.argsort(-strength):
        apart = (min(np.linalg.norm(W[i] - v), np.linalg.norm(W[i] + v)) > same for v in kept)
        if all(apart):
            kept.append(W[i])
    return np.array(kept)


def recover_scalars(W: np.ndarray, tensors: Mapping[int, np.ndarray], ell: int, activation: Activation) -> Units:
    """Return A and, up to the signs of the rows, b for given directions [ATV21, Alg. 2].

    ζ_j solves Σ_i ζ_j(i) w_i^{⊗j} = T_j. With ζ_j = (−1)^j a φ(b) He_{j−2}(b) the recurrence of He gives, for every q,

        b = −(ζ_{q+1} + (q − 2) ζ_{q−1}) / ζ_q,        a = ζ_q / h_q(b).

    The paper prints q for q − 2 and He_q for He_{q−2}: its γ_j has the index of He, its ζ_j that of the tensor. For ℓ
    = 1 q = 2, for ℓ ≥ 2 the larger of ζ_{ℓ+1} and ζ_{ℓ+2}. Several outputs share b, which is their least-squares
    solution.
    """
    if activation.homogeneity != 1.0:
        raise ValueError(f"Algorithm 2 is for relu, leaky_relu and abs. Got {activation} instead.")
    choices = (2,) if ell == 1 else (ell + 1, ell + 2)
    orders = range(choices[0] - (ell > 1), choices[-1] + 2)
    zeta = {j: best_weights(tensors[j], W, j) for j in orders}
    sizes = np.array([np.linalg.norm(zeta[q], axis=0) for q in choices])
    chosen = np.array(choices)[np.argmax(sizes, axis=0)]
    b, A = np.zeros(len(W)), np.zeros((len(zeta[choices[0]]), len(W)))
    for q in choices:
        own = chosen == q
        below = (q - 2) * zeta[q - 1][:, own] if q > 2 else 0.0
        middle = zeta[q][:, own]
        b[own] = -np.sum(middle * (zeta[q + 1][:, own] + below), axis=0) / np.maximum(np.sum(middle**2, axis=0), 1e-300)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            A[:, own] = np.nan_to_num(middle / activation.hermite(b[own], q)[q], posinf=0.0, neginf=0.0)
    return Units(W, b, A)


def order_one_weights(units: Units, T1: np.ndarray) -> np.ndarray:
    """Return the z (k,) of Σ_i z_i A_i ⊗ w_i = T_1 [ATV21, Alg. 3, step 1]."""
    columns = np.einsum("oi,id->odi", units.A, units.W).reshape(-1, len(units.W))
    return np.asarray(np.linalg.lstsq(columns, np.ravel(T1), rcond=None)[0])


def fix_signs(units: Units, T1: np.ndarray, activation: Activation) -> Units:
    """Turn (w, b) so that T_1 = Σ_i A_i h_1(b_i) w_i, for independent A_i ⊗ w_i [ATV21, Alg. 3].

    The solution of Σ_i z_i A_i ⊗ w_i = T_1 is h_1(b_i) for a unit that stands right and −h_1(−b_i) for one that has to
    be turned; these differ by act(z) − act(−z) over z whatever b. The nearer one decides, which for exact tensors and
    ReLU is the paper's sign of z_i and under errors has the wider margin.
    """
    z = order_one_weights(units, T1)
    right, turned = activation.hermite(units.b, 1)[1], -activation.hermite(-units.b, 1)[1]
    sign = np.where(np.abs(z - right) <= np.abs(z - turned), 1.0, -1.0)
    return Units(units.W * sign[:, None], units.b * sign, units.A)


def consolidate(
    W: np.ndarray,
    b: np.ndarray,
    right: np.ndarray,
    turned: np.ndarray,
    linear: np.ndarray,
    c: np.ndarray,
    activation: Activation,
) -> Network:
    """Σ_i right_i act(z_i) + turned_i act(−z_i) + L x + c, z_i = w_i·x + b_i, in k + 2 units [ATV21, Claim B.5].

    act(−z) = act(z) − m z brings every pair to one unit; what is linear in x becomes m u = act(u) − act(−u). Several
    outputs need a pair for every dimension of L (p, d). right and turned are (p, k).
    """
    m = activation.odd_slope
    if not m:
        raise ValueError(f"Claim B.5 needs act(z) − act(−z) = m z with m ≠ 0, as relu has. Got {activation} instead.")
    L = linear - m * turned @ W
    constant = c - m * turned @ b
    theta = np.vstack([constant, L.T, (right + turned).T])
    network = as_network(Student(activation, (np.column_stack([b, W]),), theta, W.shape[1] + 1, bias=1))
    assert isinstance(network, Network)
    return network
