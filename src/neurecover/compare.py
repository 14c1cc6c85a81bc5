"""How far apart two networks are, up to the symmetries that leave a network's function as it is.

Units may be permuted; a unit's scale may move between w and its column a of A (`Network.normal_form`); a unit
that adds only a constant belongs in c; units with the same (w, b) are one unit; and wherever
act(−z) = s·act(z) + κ a unit may be mirrored,

    a·act(w·x + b) = s·a·act(−w·x − b) + κ·a.

Units are paired so that the sum over pairs of the distance between (ŵ, b̂) and (w, b), or its mirror image
where that is allowed, is least. The distance is not squared: by the triangle inequality a unit that was found
exactly then keeps its partner, however far off another one is.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from neurecover.network import Network, replace_arrays
from neurecover.random import as_generator
from neurecover.risk import population_risk

_N_SAMPLES = 10_000
_EQUAL = 1e-12  # relative; two units closer than this are one


@dataclass(frozen=True, eq=False)
class Comparison:
    """The errors of a network against the truth, both without their spare units and in normal form.

    `permutation[i]` is the unit of the network that is paired with unit i of the truth, −1 where there is
    none; `signs[i]` is −1 where it is that unit's mirror image that is near. Of several equal units the first
    stands for all. `unmatched` lists the units of the network, then of the truth, that found no partner.

    `weight_error`, `bias_error` and `max_angle` are the largest ‖ŵ − w‖, |b̂ − b| and angle in radians over
    the pairs: they say nothing about unmatched units, and are infinite when one network has units and the
    other has none. `output_weight_error` is ‖Â − A‖_F / ‖A‖_F, an absent partner having a = 0, and
    `offset_error` is ‖ĉ − c‖ / ‖(A, c)‖_F; so neither depends on the scale of the outputs, and c = 0 is no
    special case. `output_mse` is the mean of (f̂(x) − f(x))² over samples and outputs, `population_risk` its mean
    over all standard Gaussian inputs [ATV21, Prop. 3.6], to 1e-15 of the squared size of its terms; None where the
    activation has no form that reaches that.
    """

    permutation: np.ndarray
    signs: np.ndarray
    weight_error: float
    bias_error: float
    output_weight_error: float
    offset_error: float
    max_angle: float
    output_mse: float
    population_risk: float | None
    unmatched: tuple[tuple[int, ...], tuple[int, ...]]


def compare(network: Network, truth: Network, *, up_to_sign: bool = False, X: ArrayLike | None = None) -> Comparison:
    """The errors of `network` against `truth`, after its units are paired with those of the truth.

    up_to_sign=True lets a unit be paired with a mirror image that has another function, as relu(−z) has, and
    leaves A and c as they are: the sense in which a method recovers units "up to sign" [ATV21]. Where the
    mirror image is the same function it is always allowed, and A and c follow.

    X (n, d) are the inputs for `output_mse`; without it, 10,000 standard Gaussian ones, the same every time.
    """
    _check_comparable(network, truth)
    estimate, estimate_groups = simplified(network)
    target, target_groups = simplified(truth)

    distances, signs = _distances(estimate, target, up_to_sign)
    found, sought = linear_sum_assignment(distances)
    signs = signs[found, sought]
    aligned, matched = _mirror(estimate.take(found), signs), target.take(sought)
    nothing_matched = found.size == 0 and max(estimate.n_hidden, target.n_hidden) > 0
    least = math.inf if nothing_matched else 0.0
    unpaired = np.delete(estimate.A, found, axis=1), np.delete(target.A, sought, axis=1)
    A_error = float(np.linalg.norm(np.hstack([aligned.A - matched.A, *unpaired])))
    A_size = float(np.linalg.norm(target.A))
    c_error = float(np.linalg.norm(aligned.c - target.c))
    c_size = float(np.linalg.norm(target.c))

    estimate_units, target_units = _firsts(estimate_groups), _firsts(target_groups)
    permutation = np.full(truth.n_hidden, -1)
    permutation[target_units[sought]] = estimate_units[found]
    truth_signs = np.ones(truth.n_hidden, dtype=int)
    truth_signs[target_units[sought]] = signs
    return Comparison(
        permutation=permutation,
        signs=truth_signs,
        weight_error=float(np.linalg.norm(aligned.W - matched.W, axis=1).max(initial=least)),
        bias_error=float(np.abs(aligned.b - matched.b).max(initial=least)),
        output_weight_error=_ratio(A_error, A_size),
        offset_error=_ratio(c_error, math.hypot(A_size, c_size)),
        max_angle=float(_angles(aligned.W, matched.W).max(initial=least)),
        output_mse=_output_mse(network, truth, X),
        population_risk=_population_risk(network, truth),
        unmatched=(
            tuple(np.delete(estimate_units, found).tolist()),
            tuple(np.delete(target_units, sought).tolist()),
        ),
    )


def simplified(network: Network) -> tuple[Network, tuple[tuple[int, ...], ...]]:
    """The same function in normal form without spare units, and the units of `network` behind each of its own.

    A unit with w = 0 is a constant and goes into c. Units that are equal, or mirror images where that is the
    same function, are merged into the first of them, and their columns of A are added. Units whose column
    is zero, from the start or by cancellation, are dropped.
    """
    normal = network.normal_form()
    constant = np.linalg.norm(normal.W, axis=1) == 0
    c = normal.c + normal.A[:, constant] @ normal.activation(normal.b[constant])
    live = np.flatnonzero(~constant & np.any(normal.A != 0, axis=0))
    normal = replace_arrays(normal.take(live), c=c)

    owners, signs = _equal_units(normal)
    normal = _mirror(normal, signs)
    together = owners[:, None] == np.arange(len(live))
    A = normal.A @ together
    size_before = np.linalg.norm(normal.A, axis=0) @ together
    kept = np.flatnonzero(np.linalg.norm(A, axis=0) > _EQUAL * size_before)
    groups = tuple(tuple(live[owners == unit].tolist()) for unit in kept)
    return replace_arrays(normal, A=A).take(kept), groups


def _equal_units(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """For every unit the first one that it equals, and −1 where it does so as the mirror image."""
    distances, turns = _distances(network, network)
    equal = distances <= _EQUAL * np.linalg.norm(_points(network), axis=1)[:, None]
    owners = np.full(network.n_hidden, -1)
    signs = np.ones(network.n_hidden, dtype=int)
    for unit in range(network.n_hidden):
        if owners[unit] < 0:
            members = np.flatnonzero((owners < 0) & equal[unit])
            owners[members] = unit
            signs[members] = turns[unit, members]
    return owners, signs


def _mirror(network: Network, signs: np.ndarray) -> Network:
    """Every unit of sign −1 as (−w, −b, s·a), with κ·a in c; with a unchanged where act has no such s and κ."""
    s, kappa = network.activation.reflection or (1.0, 0.0)
    turned = signs < 0
    return replace_arrays(
        network,
        W=signs[:, None] * network.W,
        b=signs * network.b,
        A=np.where(turned, s * network.A, network.A),
        c=network.c + kappa * network.A[:, turned].sum(axis=1),
    )


def _distances(first: Network, second: Network, up_to_sign: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Between every two units, as they are or one of them mirrored if it may be; and −1 where that is nearer."""
    P, Q = _points(first), _points(second)
    upright = cdist(P, Q)
    if first.activation.reflection is None and not up_to_sign:
        return upright, np.ones(upright.shape, dtype=int)
    mirrored = cdist(-P, Q)
    return np.minimum(upright, mirrored), np.where(mirrored < upright, -1, 1)


def _firsts(groups: tuple[tuple[int, ...], ...]) -> np.ndarray:
    return np.array([group[0] for group in groups], dtype=int)


def _points(network: Network) -> np.ndarray:
    return np.column_stack([network.W, network.b])


def _angles(U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """The angle between the rows, which arccos(u·v) would lose below 1e-8."""
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    return 2.0 * np.arctan2(np.linalg.norm(U - V, axis=1), np.linalg.norm(U + V, axis=1))


def _ratio(error: float, size: float) -> float:
    """error / size, where no error is 0 and an error against nothing is infinite."""
    if error == 0:
        return 0.0
    return error / size if size > 0 else math.inf


def _population_risk(network: Network, truth: Network) -> float | None:
    try:
        return population_risk(network, truth)
    except ValueError:  # the series of this activation is too rough
        return None


def _output_mse(network: Network, truth: Network, X: ArrayLike | None) -> float:
    if X is None:
        # A stream of its own, so that these are not the samples that someone trained on with seed 0.
        X = as_generator(0, "compare").standard_normal((_N_SAMPLES, truth.n_inputs))
    difference = network(X) - truth(X)
    if len(difference) == 0:
        raise ValueError(f"X needs at least one sample. Got shape {np.shape(X)} instead.")
    return float(np.mean(difference**2))


def _check_comparable(network: Network, truth: Network) -> None:
    for what in ("n_inputs", "n_outputs", "activation"):
        ours, theirs = getattr(network, what), getattr(truth, what)
        if ours != theirs:
            raise ValueError(f"compare needs two networks of the same {what}. Got {ours} and {theirs} instead.")
