"""One weighted fit through all answers of a box that rounds them, and the error bars of its weights.

An answer y = f(x; θ) + e is rounded where it is added up and where it is handed over. Float32 arithmetic errs by its
relative precision times the size of the terms, of which there are those of every hidden layer l, with values h_l and
G_l = ∂y/∂z_l, and those of the output, where u(y) is the power of two below |y|; a grid of digits errs by its width:

    Var e = β₀ + β₁ u(y)² + Σ_l β_l Σ_j G_lj² (Σ_i W_ji² h_i² + b_j² + z_j²) + β₃ (Σ_j |A_j h_j|)²,

and logits of rounded probabilities by β₄ times the square of what this rounding makes of them.
The β ≥ 0 are read off the residuals. With weights 1/Var e, F = Σ JᵀJ / Var e is the information and T F⁻¹ its inverse
in normal form. The variances Σ (T F⁻¹ Jᵀ r)² of the weights hold even where the model of the noise does not
[White 1980]; the outputs of one query, which share the rounding of the layers below, are added before they are squared.

Rounding is not random, and the part of it that is the same in many answers does not average out: it acts as a change of
the weights themselves, by a part of ρ = √(β₁ + … + β₃). That part is added to their variances.

Terms have the size that they have in the inputs x, where the box adds them up. The fit itself is done in coordinates z
in which the inputs are alike, x − mean being small beside the mean of some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.normal_form import ToNormalForm, aligned
from neurecover.data import Whitening
from neurecover.models import DeepNetwork, Network, jacobian, parameters, with_parameters

Layers = Network | DeepNetwork

Rounding = Callable[[np.ndarray], np.ndarray]

# Of Gauss–Newton, and how many of them are whole: answers beside a kink may change sides to and fro with whole ones.
_STEPS, _WHOLE = 20, 8
# The part of ρ that does not average out, measured as the bias of weights fitted to a hundred answers per parameter of
# networks in float32 (10-10-1, a third to a half for most weights).
_REPEATED = 0.4
# A step that moves every weight by less than this part of its standard error has arrived.
_ARRIVED = 0.1
# The least variance of an answer, relative to the mean square of the residuals.
_CERTAIN = 1e-6
# Numbers of a Jacobian in memory at a time: few, because neighbouring queries may leave most units off, and so most
# columns of a block empty.
_BLOCK = 2**21


@dataclass(frozen=True, eq=False)
class Outside:
    """What is not known of the first rows outside the directions `basis` (d, r) in which a network was fitted.

    The parts of the rows outside, for rows of length one, have errors with the `covariance` (k, k) along every
    direction. `matrix` (d, d) maps inputs x − mean to the parts of z that lie outside.
    """

    basis: np.ndarray
    matrix: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    def squares(self, X: np.ndarray) -> np.ndarray:
        """Return the squared length (n,) of each input's part outside the directions of the fit."""
        return np.asarray(np.sum(((X - self.mean) @ self.matrix) ** 2, axis=1))

    def variances(self, lengths: np.ndarray) -> np.ndarray:
        """Return the variances (k·d + k,) that the unknown parts outside add to first rows and biases; `lengths` are
        ‖row‖ on z.
        """
        own = np.diag(self.covariance) * lengths**2
        of_weights = np.outer(own, np.sum(self.matrix**2, axis=1))
        return np.append(of_weights, own * float(np.sum((self.mean @ self.matrix) ** 2)))


@dataclass(frozen=True, eq=False)
class Weighted:
    """The fitted network in normal form, and what is known of its parameters, in the order of `models.parameters`.

    `fitted` is the same network in the coordinates of the fit, which `whitening` leads to; the information is there.
    `variances` (P,) are those of the parameters, `moves` (P, P) is T F⁻¹ and `information` F. `model` holds the β of
    the noise model; the last one is that of the rounding that is known beforehand.
    `chi2` is Σ r² / Var e over the freedom: one where the model of the noise is right. `converged` is
    whether the last step was nothing beside the errors. `rounding` is that of answers (n, p), if known beforehand.
    `outside` is what the rows may have outside the directions of the fit, if these are fewer than the inputs.
    """

    network: Any
    fitted: Any
    whitening: Whitening
    information: Information
    moves: np.ndarray
    variances: np.ndarray
    model: np.ndarray
    n_equations: int
    chi2: float
    converged: bool
    rounding: Rounding | None = None
    outside: Outside | None = None

    @property
    def on_z(self) -> Any:
        """The network in all coordinates z, including those outside the directions of the fit."""
        (W, b), *above = self.fitted.layers
        return self.fitted if self.outside is None else DeepNetwork([(W @ self.outside.basis.T, b), *above])

    @property
    def freedom(self) -> int:
        """The number of equations beyond the parameters that they determine."""
        return self.n_equations - self.information.n_determinable

    @property
    def variance(self) -> float:
        """The variance of the rounding of an answer to a query z of size √d, averaged over the outputs."""
        spread = np.linalg.pinv(self.whitening.matrix)
        return float(self.noise(self.whitening.mean + np.ones((1, len(spread))) @ spread).mean() ** 2)

    def errors_of_rows(self) -> np.ndarray:
        """Return the expected errors (k,) of the hidden rows, layer after layer, relative to their lengths."""
        errors, first = [], 0
        for W, b in self.network.layers[:-1]:
            squares = self.variances[first : first + W.size].reshape(W.shape).sum(axis=1)
            errors.append(np.sqrt(squares) / np.maximum(np.linalg.norm(W, axis=1), 1e-300))
            first += W.size + b.size
        return np.concatenate(errors)

    def noise(self, X: np.ndarray) -> np.ndarray:
        """Return the standard deviations (n, p) that the answers to X will have."""
        return _deviations(self.network, X, self.model, self.rounding)

    def deviations(self, X: np.ndarray) -> np.ndarray:
        """Return the standard deviations (n, p) to expect of y − f̂(x) at queries with no part in the fit.

        Beside the rounding of the answer it has the error of the weights, J F⁻¹ Jᵀ, and the part that does not average
        out.
        """
        found = np.empty((len(X), self.network.n_outputs))
        sizes = np.sqrt(self.model[1:-1].sum()) * _REPEATED * _sizes_of_weights(self.network)
        Z = self.whitening.inputs(X)
        for part in _parts(self.network, X):
            J = jacobian(self.fitted, Z[part])
            spread = np.einsum("npi,npi->np", J @ self.information.inverse, J)
            repeated = np.einsum("npi,i->np", jacobian(self.network, X[part]) ** 2, sizes**2)
            found[part] = np.sqrt(spread + repeated + self._beyond(J, X[part]) + self.noise(X[part]) ** 2)
        return found

    def _beyond(self, J: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the variances (n, p) of f̂(x) from errors of the first rows outside; J (n, p, P) is its Jacobian."""
        if self.outside is None:
            return np.zeros(J.shape[:2])
        W = self.fitted.layers[0][0]
        G = J[:, :, W.size : W.size + len(W)] * np.linalg.norm(W, axis=1)  # by the first biases
        return np.asarray(np.einsum("npi,ij,npj->np", G, self.outside.covariance, G) * self.outside.squares(X)[:, None])

    def covariance(self, own: np.ndarray) -> np.ndarray:
        """Return the covariance of the parameters `own`, scaled so that its diagonal equals their variances."""
        C = self._to_normal_form()(self.moves[own].T)[own]
        scale = np.sqrt(self.variances[own] / np.maximum(np.diag(C), 1e-300))
        return C * scale * scale[:, None]

    def _to_normal_form(self) -> ToNormalForm:
        return ToNormalForm(self.information.model, self.information.free, self.network, self.whitening)


def fit_weighted(
    network: Layers,
    X: np.ndarray,
    Y: np.ndarray,
    whitening: Whitening | None = None,
    rounding: Rounding | None = None,
    outside: Outside | None = None,
    least: tuple[float, float] = (0.0, 0.0),
) -> Weighted | None:
    """Return the weighted least-squares fit from a network that is nearly right; None if the answers leave some weight
    undetermined.

    X are the queries as the oracle saw them, z = x without a whitening. With `outside` the fit is one in the directions
    of its basis. `least` are β₀ and β₁ as far as the format of the answers is known: residuals show them badly where
    other terms are larger.
    """
    whitening = whitening or Whitening(np.zeros(network.n_inputs), np.eye(network.n_inputs))
    if outside is not None:
        (W, b), *above = network.layers
        network = DeepNetwork([(W @ outside.basis, b), *above])
        whitening = Whitening(whitening.mean, whitening.matrix @ outside.basis)
    Z = whitening.inputs(X)
    network, normal = _both(network, whitening)
    model = _noise_model(normal, X, Y, rounding, least)
    converged = False
    for number in range(_STEPS):
        information = _information(network, Z, Y, _deviations(normal, X, model, rounding))
        if information.weakest == 0.0:
            return None
        step = information.inverse @ information.score
        part = 1.0 if number < _WHOLE else 0.5
        network, normal = _both(with_parameters(network, parameters(network) + part * step), whitening)
        converged = bool(np.all(np.abs(step) <= _ARRIVED * np.sqrt(np.diag(information.inverse))))
        if converged:
            break
        model = _noise_model(normal, X, Y, rounding, least)
    moves = ToNormalForm(information.model, information.free, normal, whitening)(information.inverse)
    variances, total = _variances(network, information, moves, Z, Y, _deviations(normal, X, model, rounding))
    variances += model[1:-1].sum() * (_REPEATED * _sizes_of_weights(normal)) ** 2
    if outside is not None:
        more = outside.variances(np.linalg.norm(network.layers[0][0], axis=1))
        variances[: len(more)] += more
    chi2 = total / max(Y.size - information.n_determinable, 1)
    noise = (model, Y.size, chi2, converged, rounding)
    return Weighted(normal, network, whitening, information, moves, variances, *noise, outside)


def _both(network: Layers, whitening: Whitening) -> tuple[Layers, Layers]:
    """Return the network on z in the scales of its normal form on x, and that normal form."""
    on_z, on_x = aligned(network, whitening)
    assert isinstance(on_z, Network | DeepNetwork)
    assert isinstance(on_x, Network | DeepNetwork)
    return on_z, on_x


def _deviations(network: Layers, X: np.ndarray, model: np.ndarray, rounding: Rounding | None) -> np.ndarray:
    """Return the standard deviations (n, p) of the answers."""
    return np.sqrt(_sizes(network, X, rounding) @ model)


def _variances(
    network: Layers, information: Information, moves: np.ndarray, X: np.ndarray, Y: np.ndarray, sigma: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return Σ (T F⁻¹ Jᵀ r)² (P,), with residuals as they would be if the answer had been left out, and Σ r²."""
    P = moves.shape[1]
    meat, total = np.zeros((P, P)), 0.0
    for part in _parts(network, X):
        J, r = _equations(network, X[part], Y[part], sigma[part])
        own = np.flatnonzero(J.any(axis=0))
        J = J[:, own]
        leverage = np.einsum("ij,ij->i", J @ information.inverse[np.ix_(own, own)], J)
        wider = r / np.sqrt(np.clip(1.0 - leverage, 1e-3, 1.0))
        # Outputs of one query are rounded together below the output layer.
        summed = (J * wider[:, None]).reshape(-1, network.n_outputs, len(own)).sum(axis=1)
        meat[np.ix_(own, own)] += summed.T @ summed
        total += float(r @ r)
    return np.einsum("ij,ij->i", moves @ meat, moves), total


def _information(network: Layers, X: np.ndarray, Y: np.ndarray, sigma: np.ndarray) -> Information:
    P = network.n_parameters
    F, score = np.zeros((P, P)), np.zeros(P)
    for part in _parts(network, X):
        J, r = _equations(network, X[part], Y[part], sigma[part])
        own = np.flatnonzero(J.any(axis=0))
        if len(own) == P:
            F += J.T @ J
        else:
            J = J[:, own]
            F[np.ix_(own, own)] += J.T @ J
        score[own] += J.T @ r
    return Information(network, np.arange(P), F, np.zeros((P, 0)), np.zeros((0, 0)), score)


def _equations(network: Layers, X: np.ndarray, Y: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Jacobian (n·p, P) and the residuals (n·p,), both over the standard deviations of the answers."""
    J = jacobian(network, X) / sigma[:, :, None]
    return J.reshape(-1, J.shape[2]), ((Y - network(X)) / sigma).ravel()


def _noise_model(
    network: Layers, X: np.ndarray, Y: np.ndarray, rounding: Rounding | None, known: tuple[float, float]
) -> np.ndarray:
    """Return β, no less than `known`, with mean Var e for r²; every answer is weighted by its expected square."""
    sizes, squares = _sizes(network, X, rounding).reshape(Y.size, -1), ((Y - network(X)) ** 2).ravel()
    # Where all terms vanish an answer is still not infinitely more certain than the others.
    least = np.zeros(sizes.shape[1])
    least[:2] = known
    least[0] = max(known[0], _CERTAIN * float(squares.mean()), 1e-300)
    model = np.zeros(sizes.shape[1])
    model[0] = float(squares.mean())
    for _ in range(5):
        expected = sizes @ np.maximum(model, least)
        rows = sizes / expected[:, None]
        scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
        model = nnls(rows / scale, squares / expected)[0] / scale
    return np.maximum(model, least)


def _sizes(network: Layers, X: np.ndarray, rounding: Rounding | None) -> np.ndarray:
    """Return the quantities that β multiplies, (n, p, L + 4) for L hidden layers."""
    act, H = network.activation, X
    slopes, terms = [], []
    for W, b in network.layers[:-1]:
        z = H @ W.T + b
        terms.append(H**2 @ (W**2).T + b**2 + z**2)
        slopes.append(act.derivative(z))
        H = act(z)
    A, c = network.layers[-1]
    Y, G = H @ A.T + c, np.broadcast_to(A, (len(X), *A.shape))
    units: list[np.ndarray] = []
    for number in range(len(terms) - 1, -1, -1):
        G = G * slopes[number][:, None, :]  # ∂y/∂z_l
        units.insert(0, np.einsum("npk,nk->np", G**2, terms[number]))
        G = G @ network.layers[number][0]
    known = np.zeros_like(Y) if rounding is None else rounding(Y) ** 2
    return np.stack([np.ones_like(Y), _binade(Y) ** 2, *units, (np.abs(H) @ np.abs(A).T) ** 2, known], axis=2)


def _binade(Y: np.ndarray) -> np.ndarray:
    """Return |y| rounded down to a power of two, to which the spacing of floating-point numbers is proportional."""
    return np.asarray(np.ldexp(0.5, np.frexp(Y)[1]) * (Y != 0.0))


def _sizes_of_weights(network: Layers) -> np.ndarray:
    """Return how far a relative change of the weights moves every parameter; a bias moves with its whole row."""
    sizes = []
    for W, b in network.layers[:-1]:
        sizes += [W.ravel(), np.sqrt(np.sum(W**2, axis=1) + b**2)]
    A, c = network.layers[-1]
    return np.abs(np.concatenate([*sizes, A.ravel(), c]))


def _parts(network: Layers, X: np.ndarray) -> list[slice]:
    rows = max(1, _BLOCK // (network.n_parameters * network.n_outputs))
    return [slice(start, start + rows) for start in range(0, len(X), rows)]
