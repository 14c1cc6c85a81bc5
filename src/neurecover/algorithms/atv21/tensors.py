"""The statements of [ATV21] about exact Hermite coefficients, for use by themselves.

`hermite_tensors` is Lemma 3.5, `units_from_tensors` Algorithm 1, and `power_singular_value` the s_m(W^⊙ℓ) in which all
its bounds are stated.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms.atv21.printed import least_ell
from neurecover.algorithms.atv21.steps import algorithm_1, population_coefficients
from neurecover.models import Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.tensors import pack, unpack
from neurecover.tensors.packing import symmetric_power


def hermite_coefficients(activation: str | Activation, b: ArrayLike, degree: int) -> NDArray[np.float64]:
    """Return the Hermite coefficients h_j(b) = E[act(g + b) He_j(g)], g ~ N(0, 1).

    For relu h_0 = b Φ(b) + φ(b), h_1 = Φ(b), and h_j = (−1)^j He_{j−2}(b) φ(b) from 2 on.

    Parameters
    ----------
    activation : str or Activation
        The function.
    b : array_like
        The biases.
    degree : int
        The largest j.

    Returns
    -------
    ndarray of shape (degree + 1, …)
        j along the first axis, then the shape of b.

    References
    ----------
    .. [ATV21] Lemma 3.5.

    Examples
    --------
    >>> import neurecover as nr
    >>> nr.hermite_coefficients("relu", 0.0, 2).round(4)
    array([0.3989, 0.5   , 0.3989])
    """
    return np.asarray(activations.get(activation).hermite(np.asarray(b, dtype=float), degree))


def hermite_tensors(network: Network, degree: int) -> dict[int, NDArray[np.float64]]:
    """Return the Hermite coefficient tensors T_j = E[f(x) He_j(x)], x ~ N(0, I), of a network.

    Parameters
    ----------
    network : Network
        f.
    degree : int
        The largest order.

    Returns
    -------
    dict of int to ndarray
        By order j = 0 to `degree`: shapes (p,), (p, d), (p, d, d), …

    References
    ----------
    .. [ATV21] Lemma 3.5.

    Examples
    --------
    >>> import neurecover as nr
    >>> net = nr.Network([[1.0, 0.0]], None, [[2.0]])
    >>> nr.hermite_tensors(net, 1)[1]
    array([[1., 0.]])
    """
    packed = population_coefficients(network, tuple(range(degree + 1)))
    return {j: unpack(T, network.n_inputs, j) for j, T in packed.items()}


def units_from_tensors(
    tensors: Mapping[int, ArrayLike],
    ell: int | None = None,
    activation: str | Activation = "relu",
    random_state: RandomStateLike = None,
) -> Network:
    """Return the units behind exact tensors T_j = E[f(x) He_j(x)] [ATV21, Alg. 1].

    Parameters
    ----------
    tensors : mapping of int to array_like
        By order, each (d, …, d) or (p, d, …, d). Orders ℓ to ℓ + 3, 2ℓ + 1 and 2ℓ + 2 are needed, for ℓ = 1 that is 1
        to 4; T_0 gives c if it is there.
    ell : int or None, default=None
        ℓ; None for the largest that the orders allow. Up to C(d + ℓ − 1, ℓ) units are found.
    activation : str or Activation, default="relu"
        The function of the units.
    random_state : int, Generator, RandomState or None, default=None
        The seed of the random combinations.

    Returns
    -------
    Network
        For ℓ = 1 with the units' signs; else (w, b) of every unit up to its sign, as `sign_ambiguities` lists them, and
        no c.

    References
    ----------
    .. [ATV21] Algorithm 1.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(4, 3, random_state=0)
    >>> found = nr.units_from_tensors(nr.hermite_tensors(truth, 4), random_state=0)
    >>> nr.compare(found, truth).weight_error < 1e-8
    True
    """
    orders = sorted(tensors)
    if ell is None:
        ell = max((j - 2) // 2 for j in orders) if orders else 1
    needed = {*range(ell, ell + 4), 2 * ell + 1, 2 * ell + 2}
    if ell < 1 or not needed <= set(orders):
        raise ValueError(f"ℓ = {max(ell, 1)} needs tensors of orders {sorted(needed)}. Got orders {orders} instead.")
    act, packed, d = activations.get(activation), {}, 0
    for j in orders:
        T = np.asarray(tensors[j], dtype=float)
        T = T[None] if T.ndim == j else T
        if T.ndim != j + 1 or (j and len(set(T.shape[1:])) != 1):
            raise ValueError(
                f"The tensor of order {j} needs {j} equal axes, outputs before them. Got {T.shape} instead."
            )
        packed[j] = pack(T, j) if j else T[:, None]
        d = T.shape[1] if j else d
    found = algorithm_1(packed, d, ell, act, as_generator(random_state, "units_from_tensors"))
    c = None
    if ell == 1 and 0 in packed:
        c = packed[0][:, 0] - found.A @ act.hermite(found.b, 0)[0]
    return Network(found.W, found.b, found.A, c, act)


def power_singular_value(network: Network | ArrayLike, ell: int | None = None) -> float:
    """Return s_m(W^⊙ℓ), the least singular value of the matrix of all w_i^{⊗ℓ}, rows at unit length.

    All bounds of [ATV21] are stated in it. It is zero where the powers are dependent, as they are for m > C(d + ℓ − 1,
    ℓ).

    Parameters
    ----------
    network : Network or array_like of shape (m, d)
        The network, or its hidden weights.
    ell : int or None, default=None
        ℓ; None for the least one with room for m units.

    Returns
    -------
    float
        The singular value.

    References
    ----------
    .. [ATV21] Theorem 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> round(nr.power_singular_value(np.eye(3)), 12)
    1.0
    """
    W = network.W if isinstance(network, Network) else np.atleast_2d(np.asarray(network, dtype=float))
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    powers = symmetric_power(W, least_ell(*W.shape) if ell is None else ell)
    return float(np.linalg.svd(powers, compute_uv=False)[-1]) if len(powers) <= powers.shape[1] else 0.0
