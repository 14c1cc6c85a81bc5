"""One hidden layer with biases under Gaussian inputs, by Hermite tensors [ATV21].

Whiten; find the span of the units from the low orders where k < d and go on in r dimensions; regress the Hermite
coefficients there, to order 4 for k ≤ r and to order 6 for more; decompose them jointly and fit the units in moment
space; fix the signs by order 1; and solve the output weights once on the samples (Algorithm 5). Units whose bias is so
large that the samples do not tell them from an affine function (group P of [ATV21, §5.2]) are left as that function,
in two units of their own (Claim B.5). The paper's own form, plain means and Jennrich's algorithm with one pair, is
`paper_directions`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.atv21.coefficients import (
    Coefficients,
    estimate_coefficients,
    gaussian_test,
    low_coefficients,
)
from neurecover.algorithms.atv21.search import usable_orders
from neurecover.algorithms.atv21.steps import consolidate, tensor_directions
from neurecover.algorithms.atv21.units import NEVER, HermiteFit, seen_units
from neurecover.algorithms.base import Estimate, Method
from neurecover.data import Mapped, Source, Whitening, reduce
from neurecover.models import Network
from neurecover.refine.task import Task
from neurecover.solve import Deadline
from neurecover.statistics import Moments
from neurecover.statistics.hermite import n_features
from neurecover.statistics.truncated import TruncatedSums
from neurecover.tensors import Span

MOST_FEATURES = 60_000  # of one sample; beyond, the tensors are too large
SIX = 3_100  # features up to which tensors of order 6 are estimated
SHARE = 0.3  # of the time there is; the rest is the finisher's


@dataclass(frozen=True)
class Found:
    """The network in the coordinates of the samples, and the fit in moment space it came from.

    basis (d, r) spans the units in whitened coordinates; W_whitened = fit.W basisᵀ. `span` is None where k ≥ d.
    """

    network: Network
    fit: HermiteFit
    basis: np.ndarray
    span: Span | None
    coefficients: Coefficients
    whitening: Whitening

    def rows(self, units: np.ndarray, bias: bool) -> np.ndarray:
        """Units (w, b) in the r dimensions of the fit, (m, r + 1), in the coordinates of the samples."""
        W, b = _in_inputs(units[:, :-1] @ self.basis.T, units[:, -1], self.whitening)
        return np.column_stack([W, b]) if bias else W


def learn(
    source: Source,
    activation: Activation,
    rng: np.random.Generator,
    *,
    n_hidden: int | None = None,
    bias: bool = True,
    deadline: Deadline = NEVER,
) -> Found:
    """The network behind Gaussian inputs of any mean and covariance (mean zero without biases).

    n_hidden=None finds k from the coefficients. ValueError where the coefficients carry no unit or would be too large.
    """
    d, p = source.n_inputs, source.n_outputs
    moments = reduce(source, Moments(d, p))
    if bias:
        whitening = Whitening.of(moments.mean[:d], moments.covariance[:d, :d])
    else:
        whitening = Whitening.of(np.zeros(d), moments.xx)
    white = Mapped(source, whitening)
    coefficients, basis, found_span = _coefficients(white, activation, rng, n_hidden, bias, deadline)
    fit = seen_units(coefficients, activation, rng, most=n_hidden, bias=bias, deadline=deadline)
    if n_hidden is None and len(fit.W) >= coefficients.r and not fit.explained and _six(coefficients.r):
        coefficients = estimate_coefficients(white, 6, rng, projection=basis)
        fit = seen_units(coefficients, activation, rng, bias=bias, deadline=deadline)
    if len(fit.W) == 0:
        raise ValueError("No Hermite coefficient of order 2 or more stands out of its error, so no unit is seen.")
    network = output_weights(white, fit, basis, activation, bias)
    W, b = _in_inputs(network.W, network.b, whitening)
    network = Network(W, b, network.A, network.c, activation)
    return Found(network, fit, basis, found_span, coefficients, whitening)


def output_weights(
    source: Source,
    fit: HermiteFit,
    basis: np.ndarray,
    activation: Activation,
    bias: bool = True,
    bound: float | None = None,
    radius: float = np.inf,
) -> Network:
    """Least squares on the features act(±(w·x + b)), x and 1 over the samples with ‖features‖ < bound [ATV21, Alg. 5].

    Without an affine part act(w·x + b) and 1 are enough. The bound and the radius of the ball for the weights are the
    paper's parameters; unless given, its τ with B from the fit, and none.
    """
    W, b, (k, d) = fit.W @ basis.T, fit.b, (len(fit.W), len(basis))
    B = max(float(np.abs(fit.A).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), 1.0)
    tau = 20.0 * k * (8.0 * k + d) * B * np.sqrt(np.log(1e6 * k * d * B)) if bound is None else bound

    def features(X: np.ndarray) -> np.ndarray:
        z = X @ W.T + b
        parts = [activation(z)]
        if fit.affine:
            parts += [activation(-z), X]
        if bias:
            parts.append(np.ones((len(X), 1)))
        return np.hstack(parts)

    q = k + (k + d) * fit.affine + bias
    beta = reduce(source, TruncatedSums(features, q, source.n_outputs, tau)).solution(radius).T
    c = beta[:, -1] if bias else np.zeros(source.n_outputs)
    if not fit.affine:
        return Network(W, b, beta[:, :k], c, activation)
    return consolidate(W, b, beta[:, :k], beta[:, k : 2 * k], beta[:, 2 * k : 2 * k + d], c, activation)


def paper_directions(source: Source, rng: np.random.Generator, n_hidden: int, regress: int = -1) -> np.ndarray:
    """The directions of [ATV21, Alg. 4] for k ≤ d as printed: plain means, one random pair, nothing polished."""
    c = estimate_coefficients(source, 4, rng, regress=regress)
    return tensor_directions(
        c.tensors,
        c.r,
        1,
        rng,
        threshold={3: 0.0, 4: 0.0},
        most=n_hidden,
        weakest=0.0,
        same=0.0,
        pairs=1,
        max_iterations=0,
    )


def _coefficients(
    source: Source,
    activation: Activation,
    rng: np.random.Generator,
    n_hidden: int | None,
    bias: bool,
    deadline: Deadline,
) -> tuple[Coefficients, np.ndarray, Span | None]:
    """Coefficients in the span of the units, an orthonormal basis of it (d, r), and how it was found."""
    d = source.n_inputs
    if n_hidden is not None and n_hidden >= d:
        degree = 6 if n_hidden > d and _six(d) else _degree(d)
        return estimate_coefficients(source, degree, rng), np.eye(d), None
    if n_features(d, 4) <= SIX:
        whole = estimate_coefficients(source, 4, rng)
        seen = whole.span((1, *usable_orders(activation, bias, 4)), n_hidden)
        if seen.basis.shape[1] == d:
            return whole, np.eye(d), seen
        return _marked(whole.projected(seen.basis), seen), seen.basis, seen
    # Orders 1 and 2 hold every unit of a relu (h_2 = φ(b)); where b = 0 is a root of h_2, as for sigmoids, order 3 is
    # needed.
    third = activation.homogeneity is None and n_features(d, 3) <= MOST_FEATURES
    low = estimate_coefficients(source, 3, rng) if third else low_coefficients(source, rng)
    seen = low.span([j for j in (1, 2, 3) if j in low.tensors], n_hidden)
    for refined in (False, True):
        r = seen.basis.shape[1]
        if r == 0:
            raise ValueError("No Hermite coefficient stands out of its error, so no unit is seen.")
        coefficients = _marked(estimate_coefficients(source, _degree(r), rng, projection=seen.basis), seen)
        if refined or deadline.passed:
            break
        fit = seen_units(coefficients, activation, rng, most=n_hidden, bias=bias, starts=4, deadline=deadline)
        rough = output_weights(source, fit, seen.basis, activation, bias)
        seen = low_coefficients(source, rng, rough).span((1, 2), n_hidden)
    return coefficients, seen.basis, seen


def _marked(coefficients: Coefficients, seen: Span) -> Coefficients:
    below = seen.singular_values[coefficients.r - 1] <= seen.threshold
    return replace(coefficients, chosen_by_noise=bool(below))


def _degree(r: int) -> int:
    degree = next((j for j in (4, 3) if n_features(r, j) <= MOST_FEATURES), None)
    if degree is None:
        raise ValueError(
            f"Tensors of order 3 in {r} dimensions have {n_features(r, 3)} entries per output, more than the "
            f"{MOST_FEATURES} that this method handles. Use least_squares."
        )
    return degree


def _six(r: int) -> bool:
    return n_features(r, 6) <= SIX


def _in_inputs(W: np.ndarray, b: np.ndarray, whitening: Whitening) -> tuple[np.ndarray, np.ndarray]:
    W = W @ whitening.matrix.T
    return W, b - W @ whitening.mean


def _refuse(task: Task) -> str | None:
    act = task.activation
    if not act.differentiable:
        return f"hermite is followed by least squares, which needs a derivative. Got {act} instead."
    if not any(j >= 3 for j in usable_orders(act, task.bias, 4)):
        return f"hermite needs an activation with Hermite coefficients of order 3 or 4, as relu has. Got {act} instead."
    return None


def _estimate(source: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> Estimate:
    test = gaussian_test(source)
    if deadline.passed:
        return Estimate(None, (test.sentence, "no time for the tensors"))
    if deadline.moment is not None:
        deadline = Deadline.after(SHARE * (deadline.moment - time.monotonic()))
    try:
        found = learn(source, task.activation, rng, n_hidden=task.n_hidden, bias=task.bias, deadline=deadline)
        asked = found.fit.asked
        starts = () if asked is None else (found.rows(asked, task.bias),)
    except (ValueError, np.linalg.LinAlgError) as error:
        return Estimate(None, (test.sentence, str(error)))
    return Estimate(found.network, (test.sentence, *_notes(found, task)), starts)


def _notes(found: Found, task: Task) -> list[str]:
    fit, c, seen = found.fit, found.coefficients, found.span
    notes = []
    if seen is not None and c.r < task.n_inputs:
        last, following = seen.singular_values[c.r - 1 : c.r + 1]
        notes.append(f"units in {c.r} of {task.n_inputs} dimensions (singular values {last:.3g}, next {following:.3g})")
    how = "plain means" if c.regressed < 0 else f"regressed to degree {c.regressed}"
    asked = "" if task.n_hidden is None else f" of {task.n_hidden}"
    notes.append(
        f"{len(fit.W)}{asked} units seen in orders {fit.orders[0]} to {fit.orders[-1]} ({how}), "
        f"χ² = {fit.chi_squared:.3g} on {fit.freedom} degrees of freedom"
    )
    if fit.affine:
        notes.append(
            f"order 1 leaves an affine part of norm {np.linalg.norm(fit.L):.3g} (χ² = {fit.unexplained:.3g} on "
            f"{fit.L.size} degrees of freedom): units that are always on or always off, or signs that are not settled"
        )
    elif fit.sign_choices > 1:
        notes.append(f"{fit.sign_choices} choices of signs fit order 1")
    return notes


METHOD = Method(
    name="hermite",
    paper="Awasthi, Tang, Vijayaraghavan: Efficient algorithms for learning depth-2 neural networks with general ReLU "
    "activations (NeurIPS 2021)",
    assumes="Gaussian inputs of any mean and covariance; biases or not; one output or several; up to d(d + 1)/2 units",
    refuse=_refuse,
    estimate=_estimate,
    reserve=True,
)
