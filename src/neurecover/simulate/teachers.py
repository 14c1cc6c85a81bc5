"""Hidden networks to be recovered: y = A act(W x + b) with random W, b and A, and optionally an affine term C x.

W (k, d) has one unit per row, b (k,) holds the biases, A (p, k) the output weights. The kinds of W differ in what
makes recovery hard: nothing (orthonormal), chance (sphere, gaussian), a small singular value (conditioned), or
pairs of almost equal units (near_parallel). k may exceed d in every kind.
"""

import numpy as np

from neurecover.activations import Activation
from neurecover.exceptions import did_you_mean
from neurecover.models import Network, replace_arrays
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate import matrices
from neurecover.simulate._checks import non_negative, number, positive_integer

KINDS = ("sphere", "gaussian", "orthonormal", "conditioned", "near_parallel")
SIGNS = ("mixed", "positive")


def teacher(
    n_inputs: int,
    n_hidden: int,
    n_outputs: int = 1,
    *,
    kind: str = "sphere",
    bias: float = 0.7,
    signs: str = "mixed",
    condition: float | None = None,
    output_condition: float | None = None,
    angle: float | None = None,
    activation: str | Activation = "relu",
    affine: bool | float = False,
    random_state: RandomStateLike = None,
) -> Network:
    """Draw a random network with one hidden layer of k = n_hidden units, d inputs, p outputs, and offset c = 0.

    Parameters
    ----------
    n_inputs, n_hidden, n_outputs : int
        The sizes d, k and p.
    kind : {"sphere", "gaussian", "orthonormal", "conditioned", "near_parallel"}, default="sphere"
        How W is drawn:

        - "sphere": w_i = g/‖g‖ with g ~ N(0, I), uniform on the unit sphere.
        - "gaussian": w_i ~ N(0, I), of norm about √d, with b_i ~ N(0, bias²).
        - "orthonormal": W Wᵀ = I if k ≤ d, else WᵀW = I, uniform among such matrices.
        - "conditioned": W = U Σ Vᵀ, U and V random orthonormal, Σ_ii = λ^-i from Σ_00 = 1 down to 1/condition
          [GKLW19, §4.3].
        - "near_parallel": unit rows in consecutive pairs at `angle` radians, each pair in a random plane; if k
          is odd the last row stands alone.
    bias : float, default=0.7
        Except for "gaussian", b_i ~ N(0, bias² ‖w_i‖²): under inputs N(0, I) the boundary of unit i lies b_i/‖w_i‖
        standard deviations from the mean.
    signs : {"mixed", "positive"}, default="mixed"
        For one output, the entries of A have magnitudes uniform in [0.5, 1.5], with random signs or all positive. For
        several outputs and kind="orthonormal", A is uniform among the matrices with AᵀA = I (p ≥ k) or A Aᵀ = I
        (p < k); for the other kinds its columns are uniform on the unit sphere.
    condition, angle : float or None, default=None
        For "conditioned" and "near_parallel".
    output_condition : float or None, default=None
        Draws A like a conditioned W instead.
    activation : str or Activation, default="relu"
        The hidden units' function.
    affine : bool or float, default=False
        Adds a term C x with rows uniform on the sphere of radius `affine`, 1 for True: under inputs N(0, I) it has this
        standard deviation in every output. The same seed gives the same W, b and A without it.
    random_state : int, Generator, RandomState or None, default=None
        The seed.

    Returns
    -------
    Network
        The network.

    Examples
    --------
    >>> import neurecover as nr
    >>> nr.simulate.teacher(6, 4, random_state=0)
    Network(n_inputs=6, n_hidden=4, n_outputs=1, activation='relu')
    """
    d = positive_integer("n_inputs", n_inputs)
    k = positive_integer("n_hidden", n_hidden)
    p = positive_integer("n_outputs", n_outputs)
    bias = non_negative("bias", bias)
    rng = as_generator(random_state, "simulate.teacher")
    W = _hidden_weights(rng, k, d, kind, condition, angle)
    b = rng.normal(0.0, bias, k) * (1.0 if kind == "gaussian" else np.linalg.norm(W, axis=1))
    A = _output_weights(rng, p, k, kind, signs, output_condition)
    radius = non_negative("affine", affine)
    C = radius * matrices.unit_rows(rng, p, d) if radius else None
    return Network(W, b, A, activation=activation, C=C)


def smoothed(
    network: Network, scale: float, *, output_weights: bool = False, random_state: RandomStateLike = None
) -> Network:
    """Return the network with W + (scale/√d) E in place of W, where E has independent N(0, 1) entries.

    Parameters
    ----------
    network : Network
        The network to perturb. Its biases stay unchanged.
    scale : float
        The root mean square change of a row, in every dimension: the τ of [ATV21, §6] and √d times the ρ of
        [GKLW19, eq. 18].
    output_weights : bool, default=False
        Whether A becomes A + (scale/√p) E′ too, which changes every unit's column by `scale` in the same sense.
    random_state : int, Generator, RandomState or None, default=None
        The seed.

    Returns
    -------
    Network
        The perturbed network.

    Examples
    --------
    >>> import neurecover as nr
    >>> net = nr.simulate.smoothed(nr.simulate.teacher(6, 4, random_state=0), 0.1, random_state=0)
    """
    scale = non_negative("scale", scale)
    rng = as_generator(random_state, "simulate.smoothed")
    (k, d), (p, _) = network.W.shape, network.A.shape
    W = network.W + scale / np.sqrt(d) * rng.standard_normal((k, d))
    if not output_weights:
        return replace_arrays(network, W=W)
    return replace_arrays(network, W=W, A=network.A + scale / np.sqrt(p) * rng.standard_normal((p, k)))


def _hidden_weights(
    rng: np.random.Generator, k: int, d: int, kind: str, condition: float | None, angle: float | None
) -> np.ndarray:
    if kind not in KINDS:
        raise ValueError(
            f"kind must be one of {', '.join(KINDS)}. Got {kind!r} instead.{did_you_mean(str(kind), KINDS)}"
        )
    if (condition is not None) != (kind == "conditioned"):
        raise ValueError(f"condition and kind='conditioned' go together. Got kind={kind!r}, condition={condition}.")
    if (angle is not None) != (kind == "near_parallel"):
        raise ValueError(f"angle and kind='near_parallel' go together. Got kind={kind!r}, angle={angle}.")
    if condition is not None:
        return matrices.conditioned(rng, k, d, _condition_number("condition", condition, k, d))
    if angle is not None:
        angle = number("angle", angle, "between 0 and π radians, both excluded", lambda v: 0 < v < np.pi)
        if d < 2:
            raise ValueError(f"kind='near_parallel' needs two or more inputs. Got n_inputs={d} instead.")
        return matrices.near_parallel(rng, k, d, angle)
    if kind == "orthonormal":
        return matrices.orthonormal(rng, k, d)
    return rng.standard_normal((k, d)) if kind == "gaussian" else matrices.unit_rows(rng, k, d)


def _output_weights(
    rng: np.random.Generator, p: int, k: int, kind: str, signs: str, condition: float | None
) -> np.ndarray:
    if signs not in SIGNS:
        raise ValueError(f"signs must be one of {', '.join(SIGNS)}. Got {signs!r} instead.")
    if signs == "positive" and (p > 1 or condition is not None):
        raise ValueError(
            "signs='positive' goes with one output and no output_condition. "
            f"Got n_outputs={p}, output_condition={condition}."
        )
    if condition is not None:
        return matrices.conditioned(rng, p, k, _condition_number("output_condition", condition, p, k))
    if p == 1:
        magnitudes = rng.uniform(0.5, 1.5, (1, k))
        return magnitudes if signs == "positive" else magnitudes * rng.choice([-1.0, 1.0], (1, k))
    if kind == "orthonormal":
        return matrices.orthonormal(rng, p, k)
    return matrices.unit_rows(rng, k, p).T


def _condition_number(name: str, value: float, n_rows: int, n_columns: int) -> float:
    value = number(name, value, "a finite number, 1 or more", lambda v: v >= 1)
    if min(n_rows, n_columns) == 1 and value > 1:
        raise ValueError(f"{name} of a {n_rows} × {n_columns} matrix can only be 1. Got {value} instead.")
    return value
