"""loss="huber" and "tukey" in recover: outliers bound in influence, named by row, and said where nobody asked."""

import numpy as np
import pytest
from scipy.optimize import minimize

import neurecover as nr
from neurecover.pipeline.robust import TUNING, pseudo_outputs, psi


def wrong_rows(seed: int, share: float = 0.02) -> tuple[np.ndarray, np.ndarray, set[int]]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, 600)
    y = 1.0 + 0.5 * x + 2.0 * np.maximum(x - 4.0, 0.0) + rng.standard_normal(600)
    bad = rng.choice(600, int(share * 600), replace=False)
    y[bad] += 30.0 * rng.choice([-1.0, 1.0], len(bad))
    return x[:, None], y, set(map(int, bad))


@pytest.mark.parametrize("loss", ["huber", "tukey"])
def test_least_squares_on_pseudo_values_is_the_m_estimate(loss: str) -> None:
    """For a straight line at a given scale, by direct minimisation of the loss."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.standard_normal(200)])
    y = X @ [1.0, 2.0] + rng.standard_t(3, 200)
    theta = np.array([1.0, 2.0])
    for _ in range(200):
        made, apart = pseudo_outputs(y[:, None], (X @ theta)[:, None], 2, loss)
        theta = np.linalg.lstsq(X, made[:, 0], rcond=None)[0]
    scale = float(((y - X @ theta) / apart[:, 0])[0])
    c = TUNING[loss]

    def total(beta: np.ndarray) -> float:
        t = (y - X @ beta) / scale
        if loss == "huber":
            return float(np.sum(np.where(np.abs(t) <= c, 0.5 * t**2, c * np.abs(t) - 0.5 * c**2)))
        return float(np.sum(c**2 / 6.0 * (1.0 - np.maximum(1.0 - (t / c) ** 2, 0.0) ** 3)))

    np.testing.assert_allclose(minimize(total, theta + 0.05, tol=1e-10).x, theta, atol=2e-4)
    t = np.linspace(-6.0, 6.0, 101)
    step = 1e-6
    slope = (psi(t + step, loss)[0] - psi(t - step, loss)[0]) / (2 * step)
    np.testing.assert_allclose(slope, psi(t, loss)[1], atol=1e-5)


def test_outliers_are_bound_and_named() -> None:
    """12 of 600 outputs off by 30: all are named, no more than 2 good rows with them, and the kink is where it was."""
    for seed in range(3):
        X, y, _ = wrong_rows(seed)
        found = nr.recover(X, y, n_hidden=1, affine=True, loss="tukey", random_state=0)
        said = next(check for check in found.certificate.checks if check.name == "outliers")
        assert said.figure is not None
        assert 12 <= said.figure <= 14
        assert found.certificate.verdict == "statistical"
        assert found.certificate.standard_errors is not None
        error = float(found.certificate.standard_errors["b"][0])
        assert error < 0.15  # about 0.09 by the Cramér–Rao bound
        assert abs(-found.network.b[0] * found.network.W[0, 0] - 4.0) < 4.0 * error


def test_outliers_are_said_where_least_squares_was_asked_for() -> None:
    X, y, bad = wrong_rows(5)
    found = nr.recover(X, y, n_hidden=1, affine=True, random_state=0)
    assert found.certificate.verdict != "statistical"
    said = next(check for check in found.certificate.checks if check.name == "outliers")
    assert "loss='tukey'" in said.sentence
    named = {int(row) for row in said.sentence.split("0:")[1].split(".")[0].replace("…", "").split(",") if row.strip()}
    assert named <= bad


def test_a_loss_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="squared, huber, tukey"):
        nr.recover(np.zeros((20, 1)), np.zeros(20), loss="absolute")
