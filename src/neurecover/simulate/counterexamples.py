"""Different networks with the same function, which no method can distinguish.

If Σ β_i w_i = 0 then, by relu(z) − relu(−z) = z,

    Σ β_i relu(w_i·x) − Σ β_i relu(−w_i·x) = Σ β_i w_i·x = 0   for every x,

so the signs of linearly dependent units without biases are not determined by the function [ATV21, Claim 4.8].
"""

import numpy as np

from neurecover.models import Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate._checks import positive_integer


def sign_ambiguous(n_inputs: int, n_hidden: int, random_state: RandomStateLike = None) -> tuple[Network, Network]:
    """Return two networks with one output and the same function, one with units w_i and one with −w_i.

    The rows have unit norm, span min(d, k − 1) dimensions and no two of them are parallel, so that neither
    network is a reordering or rescaling of the other. This needs at least three units and two inputs.
    """
    d, k = positive_integer("n_inputs", n_inputs), positive_integer("n_hidden", n_hidden)
    if d < 2 or k < 3:
        raise ValueError(
            f"Sign ambiguity needs n_inputs of 2 or more and n_hidden of 3 or more. Got {d} and {k} instead."
        )
    rng = as_generator(random_state, "simulate.sign_ambiguous")
    beta = rng.uniform(0.5, 1.5, k) * rng.choice([-1.0, 1.0], k)
    G = rng.standard_normal((k, d))
    # (I − ββᵀ/‖β‖²) G is the nearest matrix to G whose rows satisfy Σ β_i w_i = 0.
    W = G - np.outer(beta, beta @ G) / (beta @ beta)
    lengths = np.linalg.norm(W, axis=1)
    W /= lengths[:, None]
    A = (beta * lengths)[None, :]
    return Network(W, None, A), Network(-W, None, A)
