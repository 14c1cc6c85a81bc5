"""Straight lines, repeated rows and weak signals: what people's data have and teachers do not."""

import re

import numpy as np
import pytest

import neurecover as nr


def line(seed: int, n: int = 150) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, 2))
    return X, 1.0 + X @ [0.5, -0.3], rng


def test_an_exact_line_is_a_network_without_units() -> None:
    X, y, _ = line(0)
    found = nr.recover(X, y, random_state=0)
    assert found.certificate.verdict == "exact"
    assert found.network.n_hidden == 0
    assert found.network.C is not None
    np.testing.assert_allclose(found.network.C, [[0.5, -0.3]], rtol=1e-12)
    np.testing.assert_allclose(found.network.c, [1.0], rtol=1e-11)
    assert any("straight line does as well" in reason for reason in found.certificate.reasons)
    # Far from zero, and in several outputs.
    Y = np.column_stack([y, 3.0 - X[:, 0]])
    again = nr.recover(X + 1000.0, Y, random_state=0)
    assert (again.certificate.verdict, again.network.n_hidden) == ("exact", 0)


def test_a_line_under_noise_has_the_errors_of_linear_regression() -> None:
    X, y, rng = line(1, 400)
    y = y + rng.standard_normal(400)
    found = nr.recover(X, y, random_state=0)
    assert (found.certificate.verdict, found.network.n_hidden) == ("statistical", 0)
    J = np.column_stack([np.ones(400), X])
    theta, rss = np.linalg.lstsq(J, y, rcond=None)[:2]
    assert found.network.C is not None
    np.testing.assert_allclose(np.r_[found.network.c, found.network.C[0]], theta, rtol=1e-8)
    plain = np.sqrt(np.diag(np.linalg.inv(J.T @ J)) * rss / 397)
    errors = found.certificate.standard_errors
    assert errors is not None
    # Those that hold for noise of any kind differ from those for one variance by about 1/√(2·400)·2.
    np.testing.assert_allclose(np.r_[errors["c"], errors["C"][0]], plain, rtol=0.25)


def test_a_line_is_said_to_do_as_well_where_units_were_asked_for() -> None:
    X, y, rng = line(2)
    found = nr.recover(X, y + rng.standard_normal(150), n_hidden=1, random_state=0)
    assert found.certificate.verdict != "statistical"
    assert any("straight line does as well" in reason for reason in found.certificate.reasons)


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_repeated_and_rounded_rows_are_observations(step: float) -> None:
    """11 doses of 60 rows each: all are fitted, the error of the kink falls with all of them, and it is covered."""
    covered, sure, spread = 0, 0, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        dose = np.repeat(np.linspace(0.0, 10.0, 11), 60)
        y = 1.0 + 2.0 * np.maximum(dose - 4.3, 0.0) + rng.standard_normal(660)
        y = np.round(y / step) * step if step else y
        order = rng.permutation(660)
        found = nr.recover(dose[order, None], y[order], n_hidden=1, random_state=0)
        assert found.certificate.n_samples == 660
        if found.certificate.verdict != "statistical":
            continue
        sure += 1
        assert found.certificate.standard_errors is not None
        error = float(found.certificate.standard_errors["b"][0])
        spread.append(error)
        covered += abs(abs(found.network.b[0]) - 4.3) < 1.96 * error
    assert sure >= 5
    assert covered >= sure - 2
    assert max(spread) < 0.2  # with every fifth row alone it would be √5 times the 0.1 of all


def test_copies_are_no_evidence_for_an_exact_network() -> None:
    """Nine different rows of eight copies each: as little evidence as the nine, but as many rows."""
    truth = nr.simulate.teacher(2, 2, random_state=0)
    X = np.random.default_rng(0).standard_normal((9, 2))
    few, many = (nr.recover(np.repeat(X, k, axis=0), truth(np.repeat(X, k, axis=0)), 2, random_state=0) for k in (1, 8))
    assert few.certificate.verdict != "exact"
    assert many.certificate.verdict != "exact"


def test_a_weak_signal_with_honest_errors_is_statistical() -> None:
    """R² of about 0.4 with three inputs and a kink: no `failed`, and the output weight is covered where it is sure."""
    verdicts = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((500, 3))
        w = np.array([0.6, -0.8, 0.2]) / np.linalg.norm([0.6, -0.8, 0.2])
        y = 3.0 * np.maximum(X @ w - 0.2, 0.0) + 2.0 * rng.standard_normal(500)
        verdicts.append(nr.recover(X, y, 1, random_state=0).certificate.verdict)
    assert "failed" not in verdicts
    assert verdicts.count("statistical") >= 3


def test_noise_without_a_signal_is_failed() -> None:
    rng = np.random.default_rng(0)
    found = nr.recover(rng.standard_normal((120, 3)), rng.standard_normal(120), n_hidden=1, random_state=0)
    assert found.certificate.verdict == "failed"


def test_a_straight_line_states_the_error_of_its_slopes_and_a_constant_has_no_unit() -> None:
    X = np.random.default_rng(0).standard_normal((200, 2))
    noise = np.random.default_rng(1).standard_normal(200)
    line = nr.recover(X, 2.0 * X[:, 0] + 0.1 * noise, random_state=0)
    (said,) = (check.sentence for check in line.certificate.checks if check.name == "noise")
    stated = float(re.search(r"standard error of a weight is ([\d.]+)\.", said)[1])  # type: ignore[index]
    assert stated == pytest.approx(0.1 / np.sqrt(200), rel=0.3)
    nothing = nr.recover(X, np.ones(200), random_state=0)
    assert nothing.certificate.verdict == "approximate"
    assert "no hidden unit" in nothing.summary().splitlines()[0]


@pytest.mark.parametrize("seed", [4, 11])
def test_a_search_that_time_cut_short_shows_no_line(seed: int) -> None:
    """A line as good as units that nobody had time to look for is no answer: there are two of them here."""
    truth = nr.simulate.teacher(3, 2, 2, bias=0.5, random_state=seed)
    X, Y = nr.simulate.sample(truth, 30, noise=0.4, random_state=seed)
    cut = nr.recover(X, Y, random_state=0, time_budget=0.0).certificate
    assert cut.verdict in ("approximate", "failed")
    assert not next(check.passed for check in cut.checks if check.name == "convergence")
