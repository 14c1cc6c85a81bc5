"""The posterior of hinge planes by importance sampling, all slopes integrated out.

With flat priors as in `posterior`, planes S = (w_j, b_j) have the weight w_S ∝ RSS_S^(−(n − q − K)/2), q = d + 1, and
given S the coefficients are Student's t about their least-squares values. Planes are drawn from a multivariate t about
the least-squares ones, in coordinates u with w = (ŵ + T u)/|ŵ + T u|, T across ŵ, whose mean and covariance are then
those of the weighted draws, a few times over: by then most draws count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Network


@dataclass(frozen=True)
class DrawOptions:
    """How planes are drawn."""

    draws: int = 2_000  # of a round: of 1,500 that count the ends of a 95 % interval are known to 0.1 standard errors
    rounds: int = 4  # the first is about least squares, the others about the draws before
    enough: float = 10.0  # draws that count, for each coordinate, before their covariance is taken for the next round
    dof: float = 5.0  # of the t: tails that are longer than the posterior's
    first: float = 1.5  # times the least-squares errors, in the first round
    margin: float = 0.03  # share of the rows on either side of a plane, at least
    fewest: int = 3  # rows on either side in any case
    counting: float = 100.0  # draws that count fully: with fewer, errors are those of least squares
    at_once: int = 250  # draws whose columns are held at the same time


@dataclass(frozen=True, eq=False)
class Draws:
    """Parameters (T, P) in the order of `planes.parameters`, with weights (T,) that sum to one."""

    values: np.ndarray
    weight: np.ndarray

    def interval(self, level: float) -> np.ndarray:
        """Return the equal-tailed intervals (P, 2) of a level."""
        ends = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        found = np.empty((self.values.shape[1], 2))
        for i, column in enumerate(self.values.T):
            order = np.argsort(column)
            mass = np.cumsum(self.weight[order]) - 0.5 * self.weight[order]
            found[i] = np.interp(ends, mass, column[order])
        return found

    def errors(self) -> np.ndarray:
        """Return the standard deviations (P,)."""
        return np.sqrt(self.weight @ (self.values - self.weight @ self.values) ** 2)


def draw_planes(
    network: Network,
    covariance: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    within: float,
    rng: np.random.Generator,
    options: DrawOptions | None = None,
) -> Draws | None:
    """Draw from the posterior about a least-squares fit with this covariance; None where too few draws count.

    Rows X (m, d), y (m,) have weights w, and `within` is Σ (y − ȳ)² inside repeated inputs.
    """
    options = options or DrawOptions()
    K, d = network.W.shape
    places = _Places.of(network, covariance)
    rows = _Rows.of(X, y, w, within)
    centre, spread = np.zeros(K * d), options.first**2 * places.covariance
    for _ in range(options.rounds):
        made = _weighted(places, rows, centre, spread, rng, options)
        count = 1.0 / float(np.sum(made.weight**2)) if made is not None else 0.0
        if made is None:
            return None
        share = min(1.0, count / (options.enough * K * d))  # few draws say little of a covariance
        mean = made.weight @ made.at
        off = made.at - mean
        spread = share * (made.weight[:, None] * off).T @ off + (1.0 - share) * spread
        centre = share * mean + (1.0 - share) * centre
    assert made is not None
    if count < options.counting:
        return None
    return Draws(_with_coefficients(made, places, rows, rng), made.weight)


@dataclass(frozen=True, eq=False)
class _Places:
    """Coordinates of planes about those of a network: `across` (K, d, d − 1), and their covariance (K·d, K·d)."""

    network: Network
    across: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, network: Network, covariance: np.ndarray) -> _Places:
        K, d = network.W.shape
        across = np.stack([np.linalg.svd(network.W[j : j + 1])[2][1:].T for j in range(K)])
        P = len(covariance)
        to = np.zeros((K * d, P))
        for j in range(K):
            first = d + 1 + j * (d + 2)
            to[j * d : j * d + d - 1, first + 1 : first + 1 + d] = across[j].T
            to[j * d + d - 1, first + d + 1] = 1.0
        return cls(network, across, to @ covariance @ to.T)

    def planes(self, at: np.ndarray) -> np.ndarray:
        """Return (w, b) with |w| = 1, (T, K, d + 1), at coordinates (T, K·d)."""
        K, d = self.network.W.shape
        u = at.reshape(len(at), K, d)
        W = self.network.W + np.einsum("kde,tke->tkd", self.across, u[:, :, :-1])
        V = np.concatenate([W, (self.network.b + u[:, :, -1])[:, :, None]], axis=2)
        return np.asarray(V / np.linalg.norm(W, axis=2, keepdims=True))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows in units of √w: inputs with a one (m, d + 1), an orthonormal basis of them, and the output beside it."""

    X: np.ndarray
    root: np.ndarray
    basis: np.ndarray
    y: np.ndarray
    residual: np.ndarray
    rss: float
    n: float

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, w: np.ndarray, within: float) -> _Rows:
        root = np.sqrt(w)
        ones = np.column_stack([X, np.ones(len(X))])
        basis = np.linalg.qr(root[:, None] * ones)[0]
        y = root * y
        residual = y - basis @ (basis.T @ y)
        return cls(ones, root, basis, y, residual, float(residual @ residual) + within, float(w.sum()))

    def hinges(self, planes: np.ndarray) -> np.ndarray:
        """Return √w (w·x + b)₊ of planes (T, K, d + 1), (T, K, m)."""
        return np.asarray(np.maximum(planes @ self.X.T, 0.0) * self.root)


@dataclass(frozen=True, eq=False)
class _Made:
    """Coordinates (T, K·d) of draws, their weights, and the sums of squares."""

    at: np.ndarray
    weight: np.ndarray
    rss: np.ndarray


def _weighted(
    places: _Places,
    rows: _Rows,
    centre: np.ndarray,
    spread: np.ndarray,
    rng: np.random.Generator,
    options: DrawOptions,
) -> _Made | None:
    """Draw from t about the centre and weigh by posterior over proposal; None where that cannot be done."""
    D, nu = len(centre), options.dof
    try:
        L = np.linalg.cholesky(spread)
    except np.linalg.LinAlgError:
        return None
    e = rng.standard_normal((options.draws, D)) / np.sqrt(rng.chisquare(nu, (options.draws, 1)) / nu)
    at = centre + e @ L.T
    planes = places.planes(at)
    rss = np.concatenate([_left(rows, part, options) for part in np.array_split(planes, _pieces(options))])
    dof = rows.n - rows.X.shape[1] - planes.shape[1]
    logs = -0.5 * dof * np.log(rss) + 0.5 * (nu + D) * np.log1p(np.square(e).sum(axis=1) / nu)
    if not np.isfinite(logs).any():
        return None
    weight = np.exp(logs - logs.max())
    return _Made(at, weight / weight.sum(), rss)


def _pieces(options: DrawOptions) -> int:
    return max(1, options.draws // options.at_once)


def _left(rows: _Rows, planes: np.ndarray, options: DrawOptions) -> np.ndarray:
    """Return the sums of squares (T,) beside an affine part; infinite for planes beside the data."""
    H = rows.hinges(planes)
    on = np.count_nonzero(H, axis=2)
    few = max(options.fewest, options.margin * len(rows.root))
    inside = ((on >= few) & (on <= len(rows.root) - few)).all(axis=1)
    b = H @ rows.residual
    R = H @ rows.basis
    A = H @ H.transpose(0, 2, 1) - R @ R.transpose(0, 2, 1)
    A += 1e-10 * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
    A = np.where(inside[:, None, None], A, np.eye(A.shape[1]))
    gain = np.einsum("tk,tk->t", b, np.linalg.solve(A, b[:, :, None])[:, :, 0])
    return np.where(inside, np.maximum(rows.rss - gain, 1e-300), np.inf)


def _with_coefficients(made: _Made, places: _Places, rows: _Rows, rng: np.random.Generator) -> np.ndarray:
    """Draw coefficients for every set of planes that counts; return all parameters (T, P)."""
    K, d = places.network.W.shape
    dof = max(rows.n - rows.X.shape[1] - K, 1.0)
    planes = places.planes(made.at)
    values = np.zeros((len(planes), d + 1 + K * (d + 2)))
    for t in np.flatnonzero(made.weight > 1e-9):
        F = np.column_stack([rows.root[:, None] * rows.X, rows.hinges(planes[t : t + 1])[0].T])
        Q, R = np.linalg.qr(F)
        noise = rng.standard_normal(F.shape[1]) * np.sqrt(made.rss[t] / rng.chisquare(dof))
        theta = np.linalg.lstsq(R, Q.T @ rows.y + noise, rcond=None)[0]
        values[t, 0], values[t, 1 : d + 1] = theta[d], theta[:d]
        own = values[t, d + 1 :].reshape(K, d + 2)
        own[:, 0], own[:, 1:] = theta[d + 1 :], planes[t]
    return values
