"""The posterior of units with kinks, all coefficients integrated out.

For y = Σⱼ aⱼ act(wⱼ·x + bⱼ) + C x + c with act(tz) = t act(z) and |wⱼ| = 1, the planes S = (wⱼ, bⱼ) have the weight

    p(S) ∝ Σr²(S)^(−ν/2),        ν = p (n − q − k),

with Σr² after the coefficients of k units and q affine terms of p outputs are fitted: planes are equally likely in all
directions of whitened inputs, and at every distance at which a share of the rows is on either side. Given S the
coefficients are Student's t about the fitted ones. The estimate is the tip of p, its errors to first order are the
curvature there, and where samples are few both say little of p: it has a corner at every sample that a plane passes,
and may be skewed or have several tips. Draws (`solve.tempering`) start from a t with the covariance of the first order,
in the coordinates u of w = (ŵ + T u)/|ŵ + T u|, T across ŵ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Whitening
from neurecover.models import Network
from neurecover.solve.tempering import TemperingOptions, tempered


@dataclass(frozen=True)
class DrawOptions:
    """How planes are drawn."""

    dof: float = 5.0  # of the t at first: tails that are longer than the posterior's
    first: float = 1.5  # times the errors to first order
    margin: float = 0.03  # share of the rows on either side of a plane, at least
    fewest: int = 3  # rows on either side in any case
    at_once: int = 2**21  # values of hinges that are held at the same time, 16 MB
    tempering: TemperingOptions = field(default_factory=TemperingOptions)


@dataclass(frozen=True, eq=False)
class Draws:
    """Networks drawn from the posterior, stacked: W (T, k, d), b (T, k), A (T, p, k), C or None, and c.

    `rss` (T,) is the Σr² of every draw after its output weights are fitted. `worth` (k,) is, for every unit of the
    estimate, how far Σr²/σ² grows if that unit alone is removed.
    """

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    C: np.ndarray | None
    c: np.ndarray
    rss: np.ndarray
    worth: np.ndarray

    def parameters(self) -> np.ndarray:
        """Return them in the order of `models.parameters`, (T, P)."""
        parts = [self.W, self.b, self.A, *(() if self.C is None else (self.C,)), self.c]
        return np.hstack([part.reshape(len(part), -1) for part in parts])

    def about(self, network: Network) -> Draws:
        """Return the same networks with their units in the order and on the sides of those of a network."""
        means = np.column_stack([self.W.mean(axis=0), self.b.mean(axis=0)])
        order, side = order_and_side(means, network)
        W, b, A = self.W[:, order], self.b[:, order], self.A[:, :, order]
        C, c, slopes = self.C, self.c, (network.activation.odd_slope or 0.0) * A * (side < 0.0)
        if C is not None:
            C, c = C + slopes @ W, c + np.einsum("tpk,tk->tp", slopes, b)
        return replace(self, W=side[:, None] * W, b=side * b, A=A, C=C, c=c)

    def on_inputs(self, whitening: Whitening) -> Draws:
        """Return draws of networks on whitened inputs as networks on the inputs, |w| = 1."""
        W = self.W @ whitening.matrix.T
        b = self.b - W @ whitening.mean
        size = np.linalg.norm(W, axis=2)
        C = None if self.C is None else self.C @ whitening.matrix.T
        c = self.c if C is None else self.c - C @ whitening.mean
        return replace(self, W=W / size[:, :, None], b=b / size, A=self.A * size[:, None, :], C=C, c=c)


def order_and_side(units: np.ndarray, network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Return the units (k, d + 1) nearest to those of a network, in its order, and ±1 for the side they are on.

    The sides of units may differ only if an affine term absorbs that: act(z) = act(−z) + m z.
    """
    from scipy.optimize import linear_sum_assignment

    own = np.column_stack([network.W, network.b])
    signs = np.array([1.0, -1.0]) if network.C is not None or network.activation.odd_slope == 0.0 else np.ones(1)
    apart = np.linalg.norm(own[:, None] - signs[:, None, None, None] * units, axis=3)
    _, order = linear_sum_assignment(apart.min(axis=0))
    return order, signs[np.argmin(apart[:, np.arange(len(order)), order], axis=0)]


def interval(draws: np.ndarray, level: float) -> np.ndarray:
    """Return the equal-tailed intervals (P, 2) of draws (T, P)."""
    return np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0).T


def work_of_draws(n: int, network: Network, options: DrawOptions | None = None) -> float:
    """Return how many multiplications draws take, about."""
    how, k, r = (options or DrawOptions()).tempering, network.n_hidden, network.n_inputs + 1
    return float(how.points * (2 * how.moves + how.last) * n * k * (2 * r + k))


def draw_planes(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    w: np.ndarray,
    within: float,
    rng: np.random.Generator,
    options: DrawOptions | None = None,
    narrow: float = 0.0,
) -> Draws | None:
    """Draw networks from the posterior about a least-squares estimate.

    Rows X (n, d), Y (n, p) have the weights w, and `within` is the sum of squares Σ (y − ȳ)² inside groups of repeated
    inputs. Returns None if no draw has rows on both sides of every plane, or if all first-order errors of the planes
    are below `narrow`, so that draws are unnecessary.
    """
    options = options or DrawOptions()
    rows = _Rows.of(network, X, Y, w, within)
    places = _Places.of(network, rows)
    K, r = places.at.shape[0], places.at.shape[1] - 1
    D, nu, covariance = K * r, options.dof, places.covariance(rows)
    if np.all(np.diag(covariance) <= narrow**2):
        return None
    values, vectors = np.linalg.eigh(options.first**2 * covariance)
    values = np.maximum(values, 1e-12 * values[-1])

    def first(at: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * (nu + D) * np.log1p(np.square(at @ vectors / np.sqrt(values)).sum(axis=1) / nu))

    def posterior(at: np.ndarray) -> np.ndarray:
        rss = np.concatenate([rows.fit(part, options).rss for part in rows.in_parts(places.planes(at), options)])
        return np.asarray(-0.5 * rows.freedom(K) * np.log(rss / rows.total) + places.measure(at))

    T = options.tempering.points
    normal = rng.standard_normal((T, D)) / np.sqrt(rng.chisquare(nu, (T, 1)) / nu)
    at = tempered(normal * np.sqrt(values) @ vectors.T, first, posterior, rng, options.tempering)
    if at is None:
        return None
    parts = [rows.coefficients(part, rng, options) for part in rows.in_parts(places.planes(at), options)]
    planes, A, affine, rss = (np.concatenate(arrays) for arrays in zip(*parts))
    with_line = network.C is not None
    C, c = (affine[:, :, :-1] if with_line else None), affine[:, :, -1]
    found = Draws(planes[:, :, :-1], planes[:, :, -1], A, C, c, rss, rows.worth(places.at))
    return found.on_inputs(rows.whitening)


@dataclass(frozen=True, eq=False)
class _Fits:
    """Fits beside T sets of planes: Σr² (T,), output weights a (T, k, p), their information (T, k, k), and the units'
    values.
    """

    rss: np.ndarray
    a: np.ndarray
    information: np.ndarray
    hinges: np.ndarray


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows, multiplied by √w: whitened inputs and a one, Z (n, r + 1), an orthonormal basis of the affine part, and
    outputs.

    The columns of the affine part are basis @ upper.
    """

    whitening: Whitening
    activation: Activation
    Z: np.ndarray
    root: np.ndarray
    basis: np.ndarray
    upper: np.ndarray
    Y: np.ndarray
    residual: np.ndarray
    total: float
    n: float

    @classmethod
    def of(cls, network: Network, X: np.ndarray, Y: np.ndarray, w: np.ndarray, within: float) -> _Rows:
        mean = np.average(X, axis=0, weights=w)
        whitening = Whitening.of(mean, (w[:, None] * (X - mean)).T @ (X - mean) / w.sum())
        Z = np.column_stack([whitening.inputs(X), np.ones(len(X))])
        root = np.sqrt(w)
        basis, upper = np.linalg.qr(root[:, None] * (Z[:, -1:] if network.C is None else Z))
        Y = root[:, None] * Y
        residual = Y - basis @ (basis.T @ Y)
        total = float(np.vdot(residual, residual)) + within
        return cls(whitening, network.activation, Z, root, basis, upper, Y, residual, total, float(w.sum()))

    def freedom(self, k: int) -> float:
        """Return ν."""
        return self.Y.shape[1] * max(self.n - self.basis.shape[1] - k, 1.0)

    def in_parts(self, planes: np.ndarray, options: DrawOptions) -> list[np.ndarray]:
        """Divide planes (T, k, r + 1) into parts that fit in the working memory."""
        values = planes.shape[0] * planes.shape[1] * len(self.Z)
        return np.array_split(planes, min(len(planes), 1 + values // options.at_once))

    def fit(self, planes: np.ndarray, options: DrawOptions) -> _Fits:
        """Fit the output weights for every set of planes (T, k, r + 1); Σr² is infinite if a plane has no rows on one
        side.
        """
        S = planes @ self.Z.T
        on = np.count_nonzero(S > 0.0, axis=2)
        few = max(options.fewest, options.margin * len(self.root))
        inside = ((on >= few) & (on <= len(self.root) - few)).all(axis=1)
        H = self.activation(S) * self.root
        b, R = H @ self.residual, H @ self.basis
        A = H @ H.transpose(0, 2, 1) - R @ R.transpose(0, 2, 1)
        A += 1e-10 * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
        A = np.where(inside[:, None, None], A, np.eye(A.shape[1]))
        a = np.linalg.solve(A, b)
        rss = np.maximum(self.total - np.sum(b * a, axis=(1, 2)), 1e-12 * self.total)
        return _Fits(np.where(inside, rss, np.inf), a, A, H)

    def coefficients(
        self, planes: np.ndarray, rng: np.random.Generator, options: DrawOptions
    ) -> tuple[np.ndarray, ...]:
        """Draw output weights for every set of planes: return the planes, A (T, p, k), the affine part (T, p, q) and
        Σr² (T,).
        """
        found = self.fit(planes, options)
        (T, k, p), q = found.a.shape, self.basis.shape[1]
        sigma = np.sqrt(found.rss / rng.chisquare(self.freedom(k), T))[:, None, None]
        half = np.linalg.inv(np.linalg.cholesky(found.information)).transpose(0, 2, 1)
        a = found.a + sigma * half @ rng.standard_normal((T, k, p))
        beside = self.basis.T @ self.Y - (found.hinges @ self.basis).transpose(0, 2, 1) @ a
        beside = beside + sigma * rng.standard_normal((T, q, p))
        affine = np.linalg.solve(np.broadcast_to(self.upper, (T, q, q)), beside)
        return planes, a.transpose(0, 2, 1), affine.transpose(0, 2, 1), found.rss

    def worth(self, planes: np.ndarray) -> np.ndarray:
        """Return, for every unit of `planes` (k, r + 1), how far Σr²/σ² grows if that unit alone is removed, (k,)."""
        found = self.fit(planes[None], DrawOptions(margin=0.0, fewest=0))
        variance = found.rss[0] / self.freedom(len(planes))
        return np.asarray(np.square(found.a[0]).sum(axis=1) / np.diag(np.linalg.inv(found.information[0])) / variance)


@dataclass(frozen=True, eq=False)
class _Places:
    """Coordinates u (k·r) of planes near those of a network: `at` (k, r + 1) are its planes with |w| = 1, A (p, k) its
    output weights.

    `across` (k, r, r − 1) are orthonormal directions across every w. All are on whitened inputs.
    """

    at: np.ndarray
    across: np.ndarray
    A: np.ndarray

    @classmethod
    def of(cls, network: Network, rows: _Rows) -> _Places:
        whitening = rows.whitening
        back = np.linalg.pinv(whitening.matrix)
        W = network.W @ back.T
        planes = np.column_stack([W, network.b + network.W @ whitening.mean])
        size = np.linalg.norm(W, axis=1)
        across = np.stack([np.linalg.svd(row[None])[2][1:].T for row in W])
        return cls(planes / size[:, None], across, network.A * size)

    def planes(self, at: np.ndarray) -> np.ndarray:
        """Return (w, b) with |w| = 1, (T, k, r + 1), at coordinates (T, k·r)."""
        k, r = self.at.shape[0], self.at.shape[1] - 1
        u = at.reshape(len(at), k, r)
        W = self.at[:, :-1] + np.einsum("kde,tke->tkd", self.across, u[:, :, :-1])
        V = np.concatenate([W, (self.at[:, -1] + u[:, :, -1])[:, :, None]], axis=2)
        return np.asarray(V / np.linalg.norm(W, axis=2, keepdims=True))

    def measure(self, at: np.ndarray) -> np.ndarray:
        """Return the logarithm (T,) of the volume factor |d(w, b)/du|, the product of |1 + u²|^(−(r + 1)/2) over the
        planes.
        """
        k, r = self.at.shape[0], self.at.shape[1] - 1
        u = at.reshape(len(at), k, r)[:, :, :-1]
        return np.asarray(-0.5 * (r + 1) * np.log1p(np.square(u).sum(axis=2)).sum(axis=1))

    def covariance(self, rows: _Rows) -> np.ndarray:
        """Return the first-order covariance σ² S⁺ of the coordinates.

        S = Σ DᵀD, where D are the derivatives of the outputs after all output weights are projected out.
        """
        k, r = self.at.shape[0], self.at.shape[1] - 1
        S = rows.Z @ self.at.T
        H = rows.activation(S) * rows.root[:, None]
        moves = np.einsum("nd,kde->nke", rows.Z[:, :-1], self.across)
        moves = np.concatenate([moves, np.ones((len(S), k, 1))], axis=2)
        D = (rows.activation.derivative(S) * rows.root[:, None])[:, :, None] * moves
        Q = np.linalg.qr(np.hstack([rows.basis, H]))[0]
        D = D.reshape(len(S), k * r)
        D = D - Q @ (Q.T @ D)
        left = rows.residual - Q @ (Q.T @ rows.residual)
        gram = (D.T @ D) * np.kron(self.A.T @ self.A, np.ones((r, r)))
        variance = (float(np.vdot(left, left)) + rows.total - float(np.vdot(rows.residual, rows.residual))) / max(
            rows.freedom(k) - k * r, 1.0
        )
        return np.asarray(variance * np.linalg.pinv(gram, rcond=1e-10, hermitian=True))
