"""Tempered draws: the moments of densities that are known, two tips far apart, and a support that the start misses."""

import numpy as np

from neurecover.solve.tempering import tempered


def wide(at: np.ndarray) -> np.ndarray:
    """Return the log of a normal density with the standard deviation 3."""
    return np.asarray(-0.5 * np.square(at).sum(axis=1) / 9.0)


def test_draws_have_the_moments_of_a_correlated_normal() -> None:
    """Means to four of their standard errors, 1/√1000, and variances to four of theirs, √(2/1000)."""
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
    inverse, mean = np.linalg.inv(covariance), np.array([1.0, -1.0, 0.5])
    rng = np.random.default_rng(0)

    def target(at: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * np.einsum("ni,ij,nj->n", at - mean, inverse, at - mean))

    drawn = tempered(3.0 * rng.standard_normal((1_000, 3)), wide, target, rng)
    assert drawn is not None
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=4.0 / np.sqrt(1_000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=4.0 * np.sqrt(2.0 / 1_000))


def test_both_tips_are_kept_in_their_shares() -> None:
    """A quarter of the mass lies six standard deviations from the rest: its share is known to 4 √(p (1 − p)/500)."""
    rng = np.random.default_rng(1)

    def target(at: np.ndarray) -> np.ndarray:
        right, left = (-2.0 * (at[:, 0] - centre) ** 2 for centre in (1.5, -1.5))
        return np.asarray(np.logaddexp(np.log(0.25) + right, np.log(0.75) + left))

    drawn = tempered(3.0 * rng.standard_normal((1_000, 1)), wide, target, rng)
    assert drawn is not None
    assert abs(float(np.mean(drawn > 0.0)) - 0.25) < 4.0 * np.sqrt(0.25 * 0.75 / 500.0)


def test_a_density_that_is_zero_everywhere_has_no_draws() -> None:
    rng = np.random.default_rng(2)
    at = rng.standard_normal((50, 2))
    assert tempered(at, wide, lambda at: np.full(len(at), -np.inf), rng) is None
