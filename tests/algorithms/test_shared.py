"""What every method of the registry owes, whatever it does inside."""

from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import get
from neurecover.algorithms import Algorithm, get_method
from neurecover.algorithms.atv21.options import HermiteOptions
from neurecover.algorithms.bjw18.options import EnumerationOptions, PieceOptions
from neurecover.algorithms.gklw19.options import SymmetricOptions
from neurecover.search import Task
from neurecover.simulate import Exponential, SparseGross

# Data that meets the method's assumptions: teacher's (d, k, p, kind), whether it has biases, n.
SUITED: dict[str, tuple[int, int, int, str, bool, int]] = {
    "least_squares": (6, 4, 1, "gaussian", True, 400),
    "hermite": (5, 4, 1, "sphere", True, 4_000),
    "symmetric": (6, 5, 6, "orthonormal", False, 1_000),
    "exact_tensor": (6, 5, 6, "sphere", False, 2_000),
    "exact_ica": (6, 6, 8, "orthonormal", False, 2_000),
    "exact_symmetric": (6, 5, 6, "sphere", False, 2_000),
    "noisy_tensor": (6, 5, 6, "sphere", False, 2_000),
    "sign_patterns": (4, 2, 3, "sphere", False, 30),
    "one_sparse": (5, 4, 2, "sphere", False, 400),
    "arbitrary_noise": (4, 2, 3, "sphere", False, 200),
    "sparse_noise": (6, 3, 30, "sphere", False, 600),
}
# Those of [GP18], which find the first layer of a composite, have their own file.
NETWORKS = [method for method in nr.methods() if method.finds == "network"]
every_method = pytest.mark.parametrize("method", NETWORKS, ids=lambda method: method.name)
every_estimate = pytest.mark.parametrize(
    ("method", "form"),
    [(method, form) for method in NETWORKS if method.run is not None for form in method.forms],
    ids=lambda value: getattr(value, "name", value),
)


def _data(name: str, seed: int = 0) -> tuple[nr.Network, np.ndarray, np.ndarray, dict]:
    d, k, p, kind, bias, n = SUITED[name]
    truth = nr.simulate.teacher(d, k, p, kind=kind, bias=0.5 * bias, random_state=seed)
    noise = SparseGross(0.03, 50.0) if name == "sparse_noise" else 0.0
    X, Y = nr.simulate.sample(truth, n, noise=noise, random_state=seed)
    return truth, X, Y, {"n_hidden": k, "bias": bias, "method": name, "time_budget": 30}


def _honest(recovery: nr.Recovery, truth: nr.Network) -> bool:
    """Whether it is exact and right; that it is exact and wrong is an error whatever the test."""
    errors = nr.compare(recovery.network, truth)
    right = errors.weight_error < 1e-8 and not any(errors.unmatched)
    assert right or recovery.certificate.verdict != "exact", recovery.summary()
    return right and recovery.certificate.verdict == "exact"


def test_every_method_is_tested_here() -> None:
    assert {method.name for method in NETWORKS} == set(SUITED)
    assert {method.finds for method in nr.methods()} == {"network", "composite"}


@every_method
def test_a_method_says_what_it_is(method: Algorithm) -> None:
    assert get_method(method.name) is method
    assert len(method.paper) > 3
    assert len(method.assumes) > 10


@pytest.mark.usefixtures("steps_for_seconds")
@every_method
def test_recovers_what_it_is_made_for(method: Algorithm) -> None:
    solved = 0
    for seed in range(3):
        truth, X, Y, options = _data(method.name, seed)
        recovery = nr.recover(X, Y, random_state=seed, **options)
        solved += _honest(recovery, truth)
        assert recovery.method == method.name
    assert solved == 3


@pytest.mark.usefixtures("steps_for_seconds")
@every_method
def test_same_seed_same_answer(method: Algorithm) -> None:
    _, X, Y, options = _data(method.name)
    first, second = (nr.recover(X, Y, random_state=7, **options) for _ in range(2))
    np.testing.assert_array_equal(first.network.W, second.network.W)


@pytest.mark.usefixtures("steps_for_seconds")
@every_method
@pytest.mark.parametrize("damage", ["asymmetric inputs", "noise", "one unit too few", "duplicated column", "constant"])
def test_broken_assumptions_never_end_in_a_wrong_exact(method: Algorithm, damage: str) -> None:
    truth, X, Y, options = _data(method.name)
    options |= {"time_budget": 1.5}
    if damage == "asymmetric inputs":
        X = Exponential()(np.random.default_rng(0), *X.shape)
        Y = truth(X)
    elif damage == "noise":
        Y = Y + 0.3 * np.random.default_rng(0).standard_normal(Y.shape)
    elif damage == "one unit too few":
        options["n_hidden"] -= 1
    elif damage == "duplicated column":
        X = np.hstack([X, X[:, :1]])
    else:
        Y = np.ones_like(Y)
    recovery = nr.recover(X, Y, random_state=0, **options)
    assert recovery.certificate.reasons
    if damage == "asymmetric inputs":
        _honest(recovery, truth)
    else:
        assert recovery.certificate.verdict != "exact", recovery.summary()


@every_method
def test_a_task_that_does_not_fit_is_refused_in_a_sentence(method: Algorithm) -> None:
    task = Task(get("step"), 5, 1, 100, True, 3)
    reason = method.refuse(task)
    assert reason is not None
    assert reason.endswith(".")


@pytest.mark.usefixtures("steps_for_seconds")
@every_estimate
def test_an_algorithms_own_answer_is_near_and_has_a_record(method: Algorithm, form: str) -> None:
    truth, X, Y, options = _data(method.name)
    shifted = X * np.linspace(0.5, 2.0, X.shape[1])  # the answer is in the coordinates of the inputs
    moved = nr.Network(truth.W / np.linspace(0.5, 2.0, X.shape[1]), truth.b, truth.A, truth.c)
    found = nr.estimate(
        shifted, Y, options["n_hidden"], method.name, form, bias=options["bias"], random_state=0, time_budget=30
    )
    assert (found.method, found.form) == (method.name, form)
    if form == "paper" and found.network is None and method.name in ("exact_tensor", "exact_ica"):
        # As printed, the first ℓ samples have to be read without a single error: a start says so, or all is exact.
        assert "units exact" in found.notes[-1]
        assert len(found.starts) == 1
        return
    assert found.network is not None, found.summary()
    assert vars(found.details)
    assert found.summary().splitlines()[0].startswith(f"method       {method.name} ({form})")
    unexplained = np.mean((found.network(shifted) - Y) ** 2) / Y.var()
    assert unexplained < (0.5 if form == "best" else 5.0) or method.name == "sparse_noise"
    if form == "best" and method.name not in ("arbitrary_noise", "noisy_tensor"):
        assert nr.compare(found.network, moved).max_angle < 0.3


@pytest.mark.usefixtures("steps_for_seconds")
def test_estimates_that_cannot_be_had_are_said_in_a_sentence() -> None:
    _, X, Y, _ = _data("symmetric")
    refused = nr.estimate(X, Y, 5, method="symmetric", bias=True)
    assert refused.network is None
    assert "bias=False" in refused.notes[0]
    with pytest.raises(ValueError, match="has no estimate of its own"):
        nr.estimate(X, Y, 5, method="least_squares")
    with pytest.raises(ValueError, match="comes in the form best"):
        nr.estimate(X, Y, 5, method="exact_symmetric", form="paper")
    with pytest.raises(ValueError, match="use recover_lowest_layer"):
        nr.recover(X, Y, 5, method="lowest_layer")
    with pytest.raises(ValueError, match="use recover instead"):
        nr.recover_lowest_layer(X, Y, 5, method="hermite")


@pytest.mark.usefixtures("steps_for_seconds")
def test_a_defect_inside_an_algorithm_stays_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    from neurecover.algorithms.bjw18 import tensor

    def broken(*arguments: object) -> None:
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(tensor, "until_exact", broken)
    _, X, Y, options = _data("exact_tensor")
    with pytest.raises(ValueError, match="broadcast"):
        nr.recover(X, Y, random_state=0, **options)


@pytest.mark.usefixtures("steps_for_seconds")
def test_a_recovery_keeps_the_estimate_it_began_with(tmp_path: Path) -> None:
    truth, X, Y, options = _data("exact_ica")
    recovery = nr.recover(X, Y, random_state=0, **options)
    assert recovery.estimate is not None
    assert nr.compare(recovery.estimate.network, truth).weight_error < 1e-8
    recovery.save(tmp_path / "recovery.npz")
    again = nr.Recovery.load(tmp_path / "recovery.npz").estimate
    assert again is not None
    assert (again.method, again.notes) == ("exact_ica", recovery.estimate.notes)
    np.testing.assert_array_equal(again.network.W, recovery.estimate.network.W)


def test_options_are_handed_down() -> None:
    """Numbers that make a method give up, given as options and not patched into a module."""
    _, X, Y, _ = _data("hermite")
    refused = nr.estimate(X, Y, 4, "hermite", options=HermiteOptions(whole=10, most_features=10), random_state=0)
    assert "more than the 10 that this method handles" in refused.notes[-1]
    _, X, Y, _ = _data("sign_patterns")
    slow = nr.estimate(X, Y, 2, "sign_patterns", bias=False, options=EnumerationOptions(seconds=0.0), random_state=0)
    assert "budget of 0 s" in slow.notes[-1]
    _, X, Y, _ = _data("symmetric")
    test = nr.estimate(X, Y, 5, "symmetric", bias=False, options=SymmetricOptions(significance=1.0), random_state=0)
    assert "not symmetric" in test.notes[0]
    _, X, Y, _ = _data("one_sparse")
    few = nr.estimate(X, Y, 4, "one_sparse", bias=False, options=PieceOptions(most_rows=20), random_state=0)
    assert few.network is None
