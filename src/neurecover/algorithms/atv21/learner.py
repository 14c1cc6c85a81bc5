"""One hidden layer with biases under Gaussian inputs, by Hermite tensors [ATV21].

Whiten; find the span of the units from the low orders where k < d and go on in r dimensions; regress the Hermite
coefficients there to order 4; decompose them jointly and fit the units in moment space; fix the signs by order 1; and
solve the output weights once on the samples (Algorithm 5). The coefficients of what this network leaves, to order 6 for
k > r, then sharpen it (`looks`). Units whose bias is so
large that the samples do not tell them from an affine function (group P of [ATV21, §5.2]) are left as that function,
in two units of their own (Claim B.5). The paper's own form, plain means and Jennrich's algorithm with one pair, is
`learn_as_printed`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.atv21.coefficients import (
    Coefficients,
    estimate_coefficients,
    gaussian_test,
    low_coefficients,
)
from neurecover.algorithms.atv21.errors import direction_errors
from neurecover.algorithms.atv21.looks import looks, sharper_coefficients
from neurecover.algorithms.atv21.options import DEFAULTS, HermiteOptions
from neurecover.algorithms.atv21.printed import PrintedOptions, learn_as_printed
from neurecover.algorithms.atv21.search import usable_orders
from neurecover.algorithms.atv21.steps import Units, consolidate
from neurecover.algorithms.atv21.units import NEVER, HermiteFit, seen_units, settled_units
from neurecover.algorithms.base import Algorithm, Call
from neurecover.certificate import Check
from neurecover.data import Mapped, Source, Whitening, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.models import Model, Network
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.solve import Deadline
from neurecover.statistics import Moments
from neurecover.statistics.moments.hermite import n_features
from neurecover.statistics.moments.truncated import TruncatedSums
from neurecover.tensors import Span


@dataclass(frozen=True)
class Found:
    """The network in the coordinates of the samples, and the fit to moments that led to it.

    basis (d, r) spans the units in the coordinates of `whitening`, where W is fit.W basisᵀ; `rows` leads from the fit
    to the samples. `span` is None if k ≥ d. `looks` counts the estimates made from the residuals of an earlier network.
    """

    network: Network
    fit: HermiteFit
    basis: np.ndarray
    span: Span | None
    coefficients: Coefficients
    whitening: Whitening
    looks: int = 0
    bias: bool = True

    @property
    def direction_errors(self) -> np.ndarray:
        """The expected error √E‖δw‖² (k,) of every unit's direction, in whitened coordinates.

        Within the span it is that of the fit. The span, left singular vectors of coefficients M = B S Vᵀ + E with
        entries of E up to 1 in units of S, is off by (I − BBᵀ) E V S⁻¹ Bᵀw, which adds at most (d − r) ‖S⁻¹Bᵀw‖².
        """
        fit, act = self.fit, self.network.activation
        units = Units(fit.W, fit.b, fit.A)
        inside = direction_errors(units, self.coefficients, fit.orders, act, self.bias, fit.misfit)
        if self.span is None or not len(inside):
            return inside
        d, r = self.basis.shape
        along = fit.W / np.linalg.norm(fit.W, axis=1, keepdims=True) / self.span.singular_values[:r]
        return np.hypot(inside, np.sqrt(d - r) * np.linalg.norm(along, axis=1))

    def rows(self, units: np.ndarray, bias: bool) -> np.ndarray:
        """Return units (w, b) of the fit's r dimensions, (m, r + 1), in the coordinates of the samples."""
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
    options: HermiteOptions = DEFAULTS,
) -> Found:
    """Return the network behind Gaussian inputs of any mean and covariance (mean zero without biases).

    n_hidden=None finds k from the coefficients. UnsolvableError where they carry no unit or would be too large.
    """
    d, p = source.n_inputs, source.n_outputs
    moments = reduce(source, Moments(d, p))
    if bias:
        whitening = Whitening.of(moments.mean[:d], moments.covariance[:d, :d])
    else:
        whitening = Whitening.of(np.zeros(d), moments.xx)
    white = Mapped(source, whitening)
    coefficients, basis, found_span = _coefficients(white, activation, rng, n_hidden, bias, deadline, options)
    fit = seen_units(coefficients, activation, rng, most=n_hidden, bias=bias, deadline=deadline)
    if len(fit.W) == 0:
        raise UnsolvableError("No Hermite coefficient of order 2 or more stands out of its error, so no unit is seen.")
    network = output_weights(white, _in_whole(fit, basis), activation, affine=fit.affine, bias=bias)
    n_looks, r = 0, coefficients.r
    for degree in looks(coefficients.n, r, len(fit.W) > r, options):
        if deadline.passed:
            break
        if r < d and activation.homogeneity is not None:  # orders 1 and 2 of the residuals show the span better
            found_span = low_coefficients(white, rng, network, options).span((1, 2), r)
            old, basis = basis, found_span.basis
            fit = replace(fit, W=fit.W @ old.T @ basis)
            network = output_weights(white, _in_whole(fit, basis), activation, affine=fit.affine, bias=bias)
        sharper = sharper_coefficients(white, network, basis, degree, rng, options)
        sharper = replace(sharper, chosen_by_noise=coefficients.chosen_by_noise)
        again = settled_units(sharper, activation, rng, fit, bias=bias)
        if not again.explained:
            again = seen_units(sharper, activation, rng, most=n_hidden, bias=bias, deadline=deadline)
        # A limit on χ² does not tell a right network from a wrong one that well; a smaller χ² per degree does.
        if len(again.W) == 0 or not (again.explained or again.misfit < fit.misfit):
            break
        fit, coefficients, n_looks = again, sharper, n_looks + 1
        network = output_weights(white, _in_whole(fit, basis), activation, affine=fit.affine, bias=bias)
    W, b = _in_inputs(network.W, network.b, whitening)
    network = Network(W, b, network.A, network.c, activation)
    return Found(network, fit, basis, found_span, coefficients, whitening, n_looks, bias)


def output_weights(
    source: Source,
    units: Units,
    activation: Activation,
    *,
    affine: bool,
    bias: bool = True,
    bound: float | None = None,
) -> Network:
    """Fit the output weights on the features act(±(w·x + b)), x and 1 by least squares over the samples with ‖features‖
    < bound [ATV21, Alg. 5].

    Without an affine part act(w·x + b) and 1 are enough. The bound is, unless given, the paper's τ with B from the
    units; its ball for the weights is left out (`printed.algorithm_5` has it).
    """
    W, b, (k, d) = units.W, units.b, units.W.shape
    B = max(float(np.abs(units.A).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), 1.0)
    tau = 20.0 * k * (8.0 * k + d) * B * np.sqrt(np.log(1e6 * max(k, 1) * d * B)) if bound is None else bound

    def features(X: np.ndarray) -> np.ndarray:
        z = X @ W.T + b
        parts = [activation(z)]
        if affine:
            parts += [activation(-z), X]
        if bias:
            parts.append(np.ones((len(X), 1)))
        return np.hstack(parts)

    q = k + (k + d) * affine + bias
    beta = reduce(source, TruncatedSums(features, q, source.n_outputs, tau)).solution().T
    c = beta[:, -1] if bias else np.zeros(source.n_outputs)
    if not affine:
        return Network(W, b, beta[:, :k], c, activation)
    return consolidate(W, b, beta[:, :k], beta[:, k : 2 * k], beta[:, 2 * k : 2 * k + d], c, activation)


def _coefficients(
    source: Source,
    activation: Activation,
    rng: np.random.Generator,
    n_hidden: int | None,
    bias: bool,
    deadline: Deadline,
    options: HermiteOptions,
) -> tuple[Coefficients, np.ndarray, Span | None]:
    """Return coefficients in the span of the units, an orthonormal basis of that span (d, r), and how it was found."""
    d = source.n_inputs
    if n_hidden is not None and n_hidden >= d:
        return estimate_coefficients(source, _degree(d, options), rng, options=options), np.eye(d), None
    if n_features(d, 4) <= options.whole:
        whole = estimate_coefficients(source, 4, rng, options=options)
        seen = _not_empty(whole.span((1, *usable_orders(activation, bias, 4)), n_hidden))
        if seen.basis.shape[1] == d:
            return whole, np.eye(d), seen
        return _marked(whole.projected(seen.basis), seen), seen.basis, seen
    # Orders 1 and 2 hold every unit of a relu (h_2 = φ(b)); where b = 0 is a root of h_2, as for sigmoids, order 3 is
    # needed.
    third = activation.homogeneity is None and n_features(d, 3) <= options.most_features
    if third:
        low = estimate_coefficients(source, 3, rng, options=options)
    else:
        low = low_coefficients(source, rng, options=options)
    seen = low.span([j for j in (1, 2, 3) if j in low.tensors], n_hidden)
    for refined in (False, True):
        r = _not_empty(seen).basis.shape[1]
        degree = _degree(r, options)
        coefficients = estimate_coefficients(source, degree, rng, projection=seen.basis, options=options)
        coefficients = _marked(coefficients, seen)
        if refined or deadline.passed:
            break
        starts = options.counting_starts
        fit = seen_units(coefficients, activation, rng, most=n_hidden, bias=bias, starts=starts, deadline=deadline)
        rough = output_weights(source, _in_whole(fit, seen.basis), activation, affine=fit.affine, bias=bias)
        seen = low_coefficients(source, rng, rough, options).span((1, 2), n_hidden)
    return coefficients, seen.basis, seen


def _not_empty(seen: Span) -> Span:
    if seen.basis.shape[1] == 0:
        raise UnsolvableError("No Hermite coefficient stands out of its error, so no unit is seen.")
    return seen


def _in_whole(fit: HermiteFit, basis: np.ndarray) -> Units:
    """Return units in r dimensions as units in all d dimensions; the columns of `basis` (d, r) are their axes."""
    return Units(fit.W @ basis.T, fit.b, fit.A)


def _marked(coefficients: Coefficients, seen: Span) -> Coefficients:
    below = seen.singular_values[coefficients.r - 1] <= seen.threshold
    return replace(coefficients, chosen_by_noise=bool(below))


def _degree(r: int, options: HermiteOptions) -> int:
    degree = next((j for j in (4, 3) if n_features(r, j) <= options.most_features), None)
    if degree is None:
        raise UnsolvableError(
            f"Tensors of order 3 in {r} dimensions have {n_features(r, 3)} entries per output, more than the "
            f"{options.most_features} that this method handles. Use least_squares."
        )
    return degree


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


def _run(call: Call) -> Estimate:
    task, deadline = call.task, call.deadline
    options = call.options_as(HermiteOptions)
    test = gaussian_test(call.source, options)
    if deadline.passed:
        return Estimate(None, (test.sentence, "no time for the tensors"))
    try:
        if call.form == "paper":
            return _run_as_printed(call, test.sentence)
        most = task.n_inputs * (task.n_inputs + 1) // 2
        if task.n_hidden is not None and task.n_hidden > most:
            raise UnsolvableError(
                f"hermite finds at most {most} units with {task.n_inputs} inputs. Got {task.n_hidden}; use recover."
            )
        found = learn(
            call.source,
            task.activation,
            call.rng,
            n_hidden=task.n_hidden,
            bias=task.bias,
            deadline=deadline.share(options.share),
            options=options,
        )
    except UnsolvableError as reason:
        return Estimate(None, (test.sentence, str(reason)))
    asked = found.fit.asked
    starts = () if asked is None else (found.rows(asked, task.bias),)
    return Estimate(found.network, (test.sentence, *_notes(found, task)), starts, found)


def _run_as_printed(call: Call, test: str) -> Estimate:
    if call.task.n_hidden is None or not call.task.bias:
        raise UnsolvableError("The paper's Algorithm 5 takes the number of units, and biases are free in it.")
    if call.task.activation.homogeneity != 1.0:
        raise UnsolvableError(f"The paper's algorithms are for relu. Got {call.task.activation} instead.")
    options = call.options_as(PrintedOptions)
    found = learn_as_printed(call.source, call.task.activation, call.rng, call.task.n_hidden, options)
    note = (
        f"{len(found.units.W)} directions of Algorithm 4 from orders {2 * found.ell + 1} and {2 * found.ell + 2} (ℓ = "
        f"{found.ell}), {found.network.n_hidden} units after Algorithm 5"
    )
    return Estimate(found.network, (test, note), (), found)


def _notes(found: Found, task: Task) -> list[str]:
    fit, c, seen = found.fit, found.coefficients, found.span
    notes = []
    if seen is not None and c.r < task.n_inputs:
        last, following = seen.singular_values[c.r - 1 : c.r + 1]
        span = f"The units span {c.r} of {task.n_inputs} dimensions"
        notes.append(f"{span} (singular value {last:.3g}, the next {following:.3g}).")
    how = f"after a regression on degree {c.regressed}" + (f", attempt {found.looks + 1}" if found.looks else "")
    asked = "" if task.n_hidden is None else f" of {task.n_hidden}"
    notes.append(
        f"{len(fit.W)}{asked} units are seen in Hermite orders {fit.orders[0]} to {fit.orders[-1]} ({how}): "
        f"χ² = {fit.chi_squared:.3g} on {fit.freedom} degrees of freedom."
    )
    if fit.affine:
        notes.append(
            f"Order 1 leaves an affine part of norm {np.linalg.norm(fit.L):.3g} (χ² = {fit.unexplained:.3g} on "
            f"{fit.L.size} degrees of freedom): units that are always on or always off, or signs that are not settled."
        )
    elif fit.sign_choices > 1:
        notes.append(f"{fit.sign_choices} choices of signs fit order 1.")
    return notes


def _diagnose(network: Model, source: Source, rng: np.random.Generator) -> tuple[Check, ...]:
    """Return a check whether the inputs are Gaussian."""
    test = gaussian_test(source)
    return (Check("Gaussian inputs", test.gaussian, test.p_value, test.significance, test.sentence),)


ALGORITHM = Algorithm(
    name="hermite",
    paper="ATV21, Algorithms 1 to 6",
    assumes="Gaussian inputs of any mean and covariance; biases or not; one output or several; up to d(d + 1)/2 units",
    refuse=_refuse,
    run=_run,
    forms=("best", "paper"),
    options={"best": HermiteOptions, "paper": PrintedOptions},
    diagnose=_diagnose,
    reserve=True,
    weighs=True,
)
