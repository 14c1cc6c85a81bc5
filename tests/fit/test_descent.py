"""Descents of any depth: they go down, end at a stationary point or at rounding, and stop when they are told to."""

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.fit import FitOptions
from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.samples import Samples
from neurecover.matching import compare
from neurecover.models import Network, as_network, as_student
from neurecover.models.student import Student
from neurecover.simulate import teacher
from neurecover.solve import Deadline
from students import Shape, at, features, flat, network, samples_of

CASES: dict[str, Student] = {
    "one layer and skips": as_student(network((4, 4, 2)), True, skips=True),
    "one layer without biases": as_student(network((4, 4, 2), activation="tanh", bias=False), False),
    "one layer and an affine term": as_student(network((4, 3, 3), affine=True), True),
    "two layers and skips": as_student(network((4, 4, 3, 2), activation="tanh"), True, skips=True),
    "two layers": as_student(network((4, 4, 3, 2)), True),
    "three layers": as_student(network((4, 3, 3, 2, 2), activation="tanh"), True),
}
every_case = pytest.mark.parametrize("student", CASES.values(), ids=CASES)
SOLVERS = {"formed": FitOptions(), "products": FitOptions(dense=0, dense_deep=0)}
USUAL = FitOptions()


def _near(student: Student, size: float, seed: int = 3) -> Student:
    moved = student.moved(size * np.random.default_rng(seed).standard_normal(student.size))
    return replace(moved, theta=np.zeros_like(student.theta))


@every_case
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_descent_returns_to_the_student_that_made_the_samples(student: Student, solver: str) -> None:
    samples = samples_of(student, 600)
    start = _near(student, 1e-3)
    found = descend(samples, start, SOLVERS[solver], slow=PATIENT)
    assert at(samples, start).relative > 1e-10
    assert found.relative < 1e-26
    assert found.converged
    np.testing.assert_allclose(found.student(samples.F), samples.Y, atol=1e-11)


@every_case
@pytest.mark.parametrize("weighted", [False, True])
def test_every_step_goes_down_and_the_end_is_stationary(student: Student, weighted: bool) -> None:
    samples = samples_of(student, 600, noise=0.1, weighted=weighted)
    fit, values = descend(samples, _near(student, 0.05), USUAL, steps=0), []
    for _ in range(12):
        values.append(fit.rss)
        fit = descend(samples, fit.student, USUAL, steps=1)
    assert all(later <= earlier * (1.0 + 1e-12) for earlier, later in pairwise(values))
    end = descend(samples, fit.student, USUAL, slow=PATIENT)
    assert end.converged
    assert end.rss <= fit.rss * (1.0 + 1e-12)
    size = np.sqrt(end.point.system().D.max() * end.rss)  # type: ignore[attr-defined]
    # A kink between samples may stop a descent where both sides lead up to it; the slope left is that of a few rows.
    assert np.abs(end.point.gradient).max() <= (1e-5 if student.activation == get("tanh") else 1e-2) * size


@pytest.mark.parametrize("case", ["one layer and skips", "one layer without biases", "two layers"])
def test_both_solvers_come_to_one_optimum(case: str) -> None:
    """One optimum has many shallow dents between the kinks, less than one sample's share of the residual apart."""
    student = CASES[case]
    samples = samples_of(student, 800, noise=0.1)
    ends = [descend(samples, _near(student, 0.02), options, slow=PATIENT) for options in SOLVERS.values()]
    share = ends[0].rss / samples.n_equations
    assert abs(ends[0].rss - ends[1].rss) <= (1e-3 if student.activation == get("tanh") else 1.0) * share


def test_random_starts_reach_rounding() -> None:
    """Wider than the teacher, 8 of 10 starts do; products in single precision are no worse than the formed matrix."""
    solved = dict.fromkeys(SOLVERS, 0)
    for seed in range(10):
        truth = teacher(5, 3, random_state=seed)
        X = np.random.default_rng(seed).standard_normal((300, 5))
        start = Shape("relu", (6,)).student(seed, d=5)
        for name, options in SOLVERS.items():
            solved[name] += descend(Samples(features(X), truth(X), 1), start, options).relative < 1e-26
    assert min(solved.values()) >= 8, solved


def test_the_end_comes_at_the_target_after_so_many_steps_or_with_time() -> None:
    student = CASES["one layer and skips"]
    samples, start = samples_of(student, 600), _near(student, 0.3)
    assert descend(samples, start, USUAL, Deadline.after(0.0)).steps == 0
    assert descend(samples, start, USUAL, steps=3).steps == 3
    nothing = descend(samples, start, USUAL, steps=0)
    assert nothing.rss == at(samples, start).loss
    np.testing.assert_array_equal(flat(nothing.student), flat(start))
    near = descend(samples, start, USUAL, target=1e-6)
    assert 1e-26 < near.relative < 1e-6
    assert near.converged


def test_a_slow_descent_is_given_up_unless_it_is_to_be_patient() -> None:
    """Too few units for the samples: Σr² falls by little for long."""
    rng = np.random.default_rng(0)
    F = features(rng.standard_normal((500, 4)))
    samples = Samples(F, np.sin(3.0 * F[:, 1:2]) + F[:, 2:3] ** 2 + rng.standard_normal((500, 1)), 1)
    start = Shape("relu", (6,)).student()
    hasty, patient = (descend(samples, start, USUAL, slow=slow) for slow in (None, PATIENT))
    assert not hasty.converged
    assert 2 * USUAL.window <= hasty.steps < patient.steps
    assert patient.rss < hasty.rss


def test_a_student_without_units_is_its_readout() -> None:
    student = Shape("relu", (0,)).student()
    samples = samples_of(Shape("relu", (2,)).student(), noise=0.1)
    fit = descend(samples, student, USUAL)
    assert fit.converged
    best = np.linalg.lstsq(samples.F, samples.Y, rcond=None)
    assert fit.rss == pytest.approx(float(best[1][0]))


def test_steps_that_overflow_are_rejected_and_a_start_beyond_all_numbers_is_no_fit() -> None:
    rng = np.random.default_rng(0)
    F = features(30.0 * rng.standard_normal((100, 2)))
    V = np.array([[0.0, 20.0, 5.0], [1.0, -3.0, 9.0]])

    def run(scale: float) -> Fit:
        student = Student(get("exp"), (scale * V,), np.zeros((3, 1)), 3, 1, skips=False)
        return descend(Samples(F, rng.standard_normal((100, 1)), 1), student, USUAL)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(run(1.0 / 30.0).rss)
        far = run(100.0)
    assert far.relative == 1.0
    assert far.converged
    assert far.steps == 0


@pytest.mark.parametrize("seed", range(3))
def test_weights_that_few_samples_show_come_to_an_end_too(seed: int) -> None:
    """A unit on in 33 samples for its 31 weights, and 682 weights in all, more than are formed at first."""
    truth = teacher(30, 22, 10, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((1_500, 30))
    z = np.sort(X @ truth.W[0])
    truth = replace(truth, b=np.append(-0.5 * (z[-33] + z[-34]), truth.b[1:]))
    near = replace(truth, W=truth.W + 1e-4 * np.random.default_rng(1).standard_normal(truth.W.shape))
    end = descend(Samples(features(X), truth(X), 1), as_student(near, True), USUAL, slow=PATIENT)
    assert end.relative < 1e-28
    found = as_network(end.student)
    assert isinstance(found, Network)
    assert compare(found, truth).weight_error < 1e-9
