"""Faint units of the top layer under noise, each sought anew while all others give way.

A unit that adds little to the outputs has many optima, and two runs may agree on one of them that is not the lowest.
With that unit taken away, J the derivatives of the outputs by all weights that remain, and P = I − J J⁺, the others
give way to a unit in its place as far as they do to first order:

    |P (y − f(x) − a relu(w·h + b))|²        is the least Σ r² that a unit (w, b, a) on the values h below it leaves.

It costs little, so that many starts are tried. The best take the unit's place, and all weights are fitted together
again. A lower optimum is kept; one about as deep with another unit is a rival that the samples do not tell from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Whitening, unwhitened
from neurecover.models import DeepNetwork, Network, jacobian
from neurecover.refine.deep_problem import Problem
from neurecover.refine.deep_runs import Runs
from neurecover.refine.deep_settling import best_of
from neurecover.refine.model_fit import ModelFit, fit_model
from neurecover.refine.optima import one_optimum
from neurecover.refine.starts import random_units
from neurecover.solve import Deadline

FAINT = 40.0  # standard errors of a unit's output weight, the layers below given, up to which it is sought anew
POOL, DESCENTS, JOINT = 1_000, 12, 3  # random units, those that are fitted, and those fitted with all others
STEPS, BEGUN, ENDED = 20, 10, 40  # of a unit's fit, of one with all others before it may be given up, and after
HOPELESS = 50.0  # times σ² that such a fit then is above the best
SAMPLES, WORK, LOAD = 20_000, 1e10, 10  # equations to first order, what J may cost, and equations per weight of it
SAME = 1e-3  # of Σ r² that a unit explains: two fits that are closer are one
ROUNDS = 3
LOWER = 0.1  # of σ², by which an optimum is lower


def with_faint_units_sought(problem: Problem, runs: Runs, rng: np.random.Generator, deadline: Deadline) -> Runs:
    """The runs with the lowest optimum that other faint units lead to.

    Without noise there is none to seek, and without biases h is not whitened.
    """
    settled, p = runs.best, problem.source.n_outputs
    size, n_equations = settled.fit.network.n_parameters, problem.n_samples * p
    n_rows = int(min(SAMPLES, WORK / size**2)) // p
    if runs.exact or not problem.bias or n_rows * p < LOAD * size:
        return runs
    best, others = settled.fit, list[ModelFit[DeepNetwork]]()
    for _ in range(ROUNDS):
        others += _sought(problem, best, n_rows, rng, deadline)
        lowest = min([best, *others], key=lambda fit: fit.rss)
        gained, best = best.rss - lowest.rss, lowest
        if gained <= LOWER * best.rss / n_equations or deadline.passed:
            break
    agreed = runs.agreed
    if best is not settled.fit:  # which a fit from another start has to agree with again
        agreed = any(
            one_optimum(problem.source, fit.network, best.network, fit.rss, best.rss, n_equations)
            for fit in others
            if fit is not best
        )
        others.append(settled.fit)
    rivals = best_of([best, *others], problem.total, n_equations).rivals
    settled = best_of([best, *settled.rivals], problem.total, n_equations)
    relative = best.rss / problem.total
    return replace(runs, best=settled, relative_rss=relative, agreed=agreed, unrivalled=not rivals)


def _sought(
    problem: Problem, best: ModelFit[DeepNetwork], n_rows: int, rng: np.random.Generator, deadline: Deadline
) -> list[ModelFit[DeepNetwork]]:
    """Fits of all weights that begin with another unit in the place of each faint one."""
    samples, n_equations = problem.samples(n_rows, rng), problem.n_samples * problem.source.n_outputs
    fits: list[ModelFit[DeepNetwork]] = []
    for unit in _faint(best.network, samples.X, samples.Y):
        for network in _with_another(best.network, int(unit), samples.X, samples.Y, rng, deadline):
            if deadline.passed:
                break
            fit = fit_model(problem.source, network.normal_form(), deadline, BEGUN)
            if fit.rss <= (1.0 + HOPELESS / n_equations) * best.rss:
                fits.append(fit if fit.converged else fit_model(problem.source, fit.network, deadline, ENDED))
    return fits


def _faint(network: DeepNetwork, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The units of the top layer with a small |a|/(its standard error), the layers below given; the faintest first."""
    H = np.hstack([network.hidden(X)[-1], np.ones((len(X), 1))])
    variance = np.mean((Y - network(X)) ** 2, axis=0)
    spread = np.diag(np.linalg.pinv(H.T @ H, hermitian=True))[:-1]
    squares = np.sum(network.layers[-1][0] ** 2 / np.maximum(variance, 1e-300)[:, None], axis=0)
    strength = np.sqrt(squares / np.maximum(spread, 1e-300))
    return np.argsort(strength)[: np.count_nonzero(strength < FAINT)]


def _with_another(
    network: DeepNetwork, unit: int, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> list[DeepNetwork]:
    """The network with one unit of its top layer replaced by others that explain much of what is left."""
    alone = _Alone.of(network, unit, X, Y)
    found: list[tuple[float, Network]] = []
    for start in alone.starts(rng):
        if deadline.passed:
            break
        gain, other = alone.fitted(start)
        if all(abs(gain - known) > SAME * known for known, _ in found):
            found.append((gain, other))
    found.sort(key=lambda pair: -pair[0])
    return [_placed(network, unit, other) for _, other in found[:JOINT]]


@dataclass(frozen=True, eq=False)
class _Alone:
    """P and P (y − f(x)) without the unit, as Q (n, p, r) with P = I − Q Qᵀ and `rest` (n, p); h whitened (n, m)."""

    activation: Activation
    h: np.ndarray
    whitening: Whitening
    Q: np.ndarray
    rest: np.ndarray

    @classmethod
    def of(cls, network: DeepNetwork, unit: int, X: np.ndarray, Y: np.ndarray) -> _Alone:
        (W, b), (A, c) = network.layers[-2:]
        top = (np.delete(W, unit, axis=0), np.delete(b, unit)), (np.delete(A, unit, axis=1), c)
        others = DeepNetwork([*network.layers[:-2], *top], network.activation)
        J = jacobian(others, X)
        Q = np.linalg.qr(J.reshape(Y.size, -1))[0].reshape(J.shape)
        h = network.hidden(X)[-2] if network.depth > 1 else X
        whitening = Whitening.of(h.mean(axis=0), np.atleast_2d(np.cov(h.T, bias=True)))
        return cls(
            network.activation, whitening.inputs(h), whitening, Q, _without(Q, (Y - others(X))[:, :, None])[..., 0]
        )

    def starts(self, rng: np.random.Generator) -> np.ndarray:
        """Of many random units the ones (w, b, a) that leave least."""
        m = self.h.shape[1]
        V = random_units(rng, POOL, m, bias=True)
        values = self.activation(self.h @ V[:, :m].T + V[:, m])
        inner = values.T @ self.rest
        along = np.stack([np.sum((Q.T @ values) ** 2, axis=0) for Q in self.Q.transpose(1, 0, 2)], axis=1)
        sizes = np.maximum(np.sum(values**2, axis=0)[:, None] - along, 1e-12 * np.sum(values**2, axis=0)[:, None])
        sizes = np.maximum(sizes, 1e-300)
        best = np.argsort(-np.sum(inner**2 / sizes, axis=1))[:DESCENTS]
        return np.hstack([V, inner / sizes])[best]

    def fitted(self, start: np.ndarray) -> tuple[float, Network]:
        """The unit that a start leads to, and by how much it lowers Σ r²."""
        from scipy.optimize import least_squares

        fit = least_squares(self._left, start, self._slopes, method="lm", max_nfev=STEPS)
        m = self.h.shape[1]
        unit = Network(fit.x[None, :m], fit.x[m : m + 1], fit.x[m + 1 :, None], None, self.activation)
        placed = unwhitened(unit, self.whitening)
        assert isinstance(placed, Network)
        return float(np.sum(self.rest**2) - 2.0 * fit.cost), placed

    def _left(self, theta: np.ndarray) -> np.ndarray:
        m = self.h.shape[1]
        value = self.activation(self.h @ theta[:m] + theta[m])
        return (self.rest - _without(self.Q, np.multiply.outer(value, theta[m + 1 :])[:, :, None])[..., 0]).ravel()

    def _slopes(self, theta: np.ndarray) -> np.ndarray:
        n, m = self.h.shape
        z, a = self.h @ theta[:m] + theta[m], theta[m + 1 :]
        by_unit = self.activation.derivative(z)[:, None] * np.hstack([self.h, np.ones((n, 1))])
        by_output = self.activation(z)[:, None, None] * np.eye(len(a))
        both = np.concatenate([a[:, None] * by_unit[:, None, :], by_output], axis=2)
        return -_without(self.Q, both).reshape(n * len(a), -1)


def _without(Q: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """P applied to columns (n, p, c)."""
    flat, rows = columns.reshape(-1, columns.shape[2]), Q.reshape(-1, Q.shape[2])
    return (flat - rows @ (rows.T @ flat)).reshape(columns.shape)


def _placed(network: DeepNetwork, unit: int, other: Network) -> DeepNetwork:
    (W, b), (A, c) = (tuple(array.copy() for array in layer) for layer in network.layers[-2:])
    W[unit], b[unit], A[:, unit] = other.W[0], other.b[0], other.A[:, 0]
    return DeepNetwork([*network.layers[:-2], (W, b), (A, c + other.c)], network.activation)
