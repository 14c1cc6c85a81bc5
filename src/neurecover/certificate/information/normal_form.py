"""Convert a network on whitened inputs to its normal form on the original inputs, together with its errors.

The function does not determine the scale of a unit: it is constant along the directions G of `models.free_directions`.
In normal form every row has fixed length (for exp, every bias is zero). With the gradients of these constraints as the
columns of N, a covariance Σ of the parameters becomes

    Q Σ Qᵀ,        Q = I − G (NᵀG)⁻¹ Nᵀ.

With one hidden layer and an affine term, the sign of a unit is not determined either: (w, b) → −(w, b) with
C → C + m a wᵀ and c → c + m a b is the same function. This is a discrete choice, made before errors are computed.
"""

from __future__ import annotations

import numpy as np

from neurecover.certificate.signs.ambiguity import turned
from neurecover.data import Whitening, unwhiten
from neurecover.models import Composite, DeepNetwork, Layered, Model, Network, Polynomial, free_directions, parameters
from neurecover.models.layered import looks_back


def aligned(model: Model, whitening: Whitening) -> tuple[Model, Model]:
    """Return the network on whitened inputs, with the scales and signs of its normal form, and the normal form itself.

    The network without its affine term is aligned first. With C, the units that the normal form negates are also
    negated on whitened inputs: the parameters of both then differ only by the linear map between the inputs.
    """
    if isinstance(model, Composite) or model.C is None:
        return _aligned(model, whitening)
    white, plain = _aligned(model.with_layers(model.layers, None), whitening)
    normal = unwhiten(model, whitening).normal_form()
    assert isinstance(white, Layered)
    white = white.with_layers(white.layers, model.C)
    if isinstance(white, Network) and isinstance(plain, Network) and signs_are_convention(normal):
        white = turned(white, np.where(looks_back(plain.W), -1, 1))
    return white, normal


def signs_are_convention(model: Model) -> bool:
    """Return whether C absorbs the change of sign of any unit, as it does with a single hidden layer.

    With more layers m A_j w_jᵀ h is not affine in x, and the signs are determined as without C.
    """
    return isinstance(model, Network) and model.C is not None and bool(model.activation.odd_slope)


def _aligned(model: Model, whitening: Whitening) -> tuple[Model, Model]:
    """Return the same as `aligned`, for a network without an affine term."""
    final = unwhiten(model, whitening)
    normal = final.normal_form()
    length = np.linalg.norm(final.hidden_weights[0], axis=1)
    exponential = model.activation.name == "exp"
    factor = np.where(length > 0.0, length, 1.0) if model.activation.homogeneity is not None else np.ones(len(length))
    if not isinstance(model, Composite) and model.activation.reflection is not None:
        rows = np.einsum("ji,ji->j", final.hidden_weights[0], normal.hidden_weights[0])
        factor = np.where(rows < 0.0, -factor, factor)  # the normal form has negated these units
    V = model.hidden_weights[0] / factor[:, None]
    if isinstance(normal, Composite):
        assert isinstance(model, Composite)
        t = -normal.W @ whitening.mean if exponential else model.threshold / factor
        return Composite(V, t, normal.upper, model.activation), normal
    if isinstance(normal, Network):
        assert isinstance(model, Network)
        # For exp the biases are in the weights above; a bias of zero on the inputs is w·mean on whitened inputs.
        b = normal.W @ whitening.mean if exponential else model.b / factor
        return Network(V, b, normal.A, normal.c, model.activation), normal
    assert isinstance(model, DeepNetwork)
    return DeepNetwork([(V, model.layers[0][1] / factor), *normal.layers[1:]], model.activation), normal


class ToNormalForm:
    """The map T, δθ = T δθ_z, from the free parameters on whitened inputs to all parameters of the normal form.

    T = Q L, where L transforms the first layer and C, which read the inputs, and Q is the projection along the free
    scales. T is applied without being formed.
    """

    def __init__(self, white: Model, free: np.ndarray, normal: Model, whitening: Whitening) -> None:
        self.k, r = len(normal.hidden_weights[0]), whitening.rank
        self.whitening = whitening
        self.sign = 1.0 if isinstance(normal, Composite) else -1.0  # t = t_z + w·mean, b = b_z − w·mean
        self.p = normal.n_outputs if isinstance(normal, Layered) and normal.C is not None else 0  # rows of C
        varied = np.zeros(len(parameters(white)), dtype=bool)
        varied[free] = True
        within, offsets = np.split(varied[self.k * r :], [len(varied) - self.k * r - self.p * (r + 1)])
        self.within = within  # the parameters between W and C, or after W if there is no C
        self.offsets = offsets[self.p * r :]
        d = len(whitening.matrix)
        weights = np.ones(self.k * d, dtype=bool), np.ones(self.p * d, dtype=bool)
        self.varies = np.concatenate([weights[0], within, weights[1], self.offsets])
        G = free_directions(normal)
        open_scales = ~np.any(G[~self.varies] != 0.0, axis=0)
        self.G, N = G[:, open_scales], _fixed_by_normal_form(normal)[:, open_scales]
        self.K = np.linalg.solve(N.T @ self.G, N.T)

    def __call__(self, M: np.ndarray) -> np.ndarray:
        """Return T M for M (free parameters, q)."""
        moved = self._on_inputs(M)
        moved -= self.G @ (self.K @ moved)
        return moved

    def _on_inputs(self, M: np.ndarray) -> np.ndarray:
        """Return L M: w = M w_z and b = b_z ∓ w·mean if b is free, C and c likewise; the rest is unchanged."""
        (d, r), (k, p), q = self.whitening.matrix.shape, (self.k, self.p), M.shape[1]
        moved = np.zeros((len(self.varies), q))
        after_W, before_C = k * d, k * d + len(self.within)
        moved[after_W:before_C][self.within] = M[k * r :][: np.count_nonzero(self.within)]
        moved[len(moved) - p :][self.offsets] = M[len(M) - np.count_nonzero(self.offsets) :]
        starts = (0, after_W, k, 0), (before_C, before_C + p * d, p, k * r + np.count_nonzero(self.within))
        for first, offset, rows, start in starts:
            V, v = moved[first : first + rows * d].reshape(rows, d, q), moved[offset : offset + rows]
            np.matmul(self.whitening.matrix, M[start : start + rows * r].reshape(rows, r, q), out=V)
            if self.varies[offset : offset + rows].any():
                v += self.sign * (self.whitening.mean @ V)
        return moved


def by_name(normal: Model, flat: np.ndarray) -> dict[str, np.ndarray]:
    """Return a flat vector in the order of `models.parameters` as arrays, by their names in the network's file."""
    arrays, start, named = normal.to_arrays(), 0, {}
    for name in array_names(normal):
        size = arrays[name].size
        named[name] = flat[start : start + size].reshape(arrays[name].shape)
        start += size
    return named


def array_names(model: Model) -> tuple[str, ...]:
    """Return the names of a network's arrays in the order of `models.parameters`."""
    if isinstance(model, Layered):
        return tuple(model.arrays)
    above = model.upper
    upper = tuple(f"upper_{name}" for name in above.arrays) if isinstance(above, Layered) else ()
    return ("W", "threshold", *(("coefficients",) if isinstance(above, Polynomial) else upper))


def hidden_names(model: Layered) -> tuple[str, ...]:
    """Return the names of the arrays of the hidden layers, W and b in turns."""
    return tuple(model.arrays)[: 2 * model.depth]


def _fixed_by_normal_form(normal: Model) -> np.ndarray:
    """Return the gradient of the normal form's constraint for every unit, in the column order of free_directions."""
    size, columns, start = len(parameters(normal)), [], 0
    for W, act in zip(normal.hidden_weights, normal.hidden_activations):
        k, m = W.shape
        for j in range(k) if act.homogeneity is not None or act.name == "exp" else ():
            column = np.zeros(size)
            if act.name == "exp":
                column[start + k * m + j] = 1.0
            else:
                column[start + j * m : start + (j + 1) * m] = W[j]
            columns.append(column)
        start += k * (m + 1)
    return np.array(columns).reshape(-1, size).T
