"""Widths that nobody gives: what a network without skips needs, in every direction of the lattice of widths."""

import numpy as np
import pytest

from neurecover.fit import EXACT, FitOptions
from neurecover.fit.descent import PATIENT, descend
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, as_student
from neurecover.search import Task
from neurecover.search.find import Runs
from neurecover.search.race import Setting
from neurecover.search.settle import Settled
from neurecover.search.units import one_less
from neurecover.search.widths import best_on, criterion, to_neighbours
from neurecover.solve import Deadline
from students import features

OPTIONS = FitOptions()


def _teacher(widths: tuple[int, int], shift: float, seed: int) -> DeepNetwork:
    """Orthogonal rows, units on in about half of the samples but for the first of the second layer, on by `shift`."""
    rng = np.random.default_rng(seed)
    W, V = (np.linalg.qr(rng.standard_normal((k, k)))[0] for k in (4, widths[0]))
    W, V, b = W[: widths[0]], V[: widths[1]], 0.3 * rng.standard_normal(widths[0])
    c = -V @ np.maximum(rng.standard_normal((2_000, 4)) @ W.T + b, 0.0).mean(axis=0)
    c[0] += shift
    return DeepNetwork([(W, b), (V, c), (np.array([[1.0, -1.2, 0.9][: widths[1]]]), np.zeros(1))], "relu")


def _samples(net: DeepNetwork, n: int, noise: float, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return Samples(features(X), net(X) + noise * rng.standard_normal((n, 1)), 1)


def _setting(net: DeepNetwork, n: int, seed: int) -> Setting:
    task = Task(net.activation, 4, 1, n, True, None, depth=2)
    return Setting.plain(task, np.random.default_rng(seed), Deadline())


@pytest.mark.parametrize("seed", range(3))
def test_a_unit_that_skips_stand_in_for_is_counted(seed: int) -> None:
    """What is always on is a sum of the units below: a student with skips does without, and its network does not."""
    net = _teacher((3, 2), 20.0, seed)
    samples, setting = _samples(net, 600, 0.0, seed), _setting(net, 600, seed)
    whole = descend(samples, as_student(net, True, skips=True), OPTIONS)
    less = descend(samples, one_less(whole.point, [1])[1], OPTIONS)
    assert less.student.widths == (3, 1)
    assert less.relative < EXACT
    assert criterion(less, setting) < criterion(whole, setting)
    assert best_on([whole, less], setting)[0] is whole


@pytest.mark.slow
def test_a_unit_that_is_missing_comes_back() -> None:
    net, n = _teacher((3, 3), 0.0, 0), 800
    samples, setting = _samples(net, n, 0.02, 0), _setting(net, n, 0)
    (W, b), (V, c), top = net.layers
    truth = descend(samples, as_student(net, True), OPTIONS, slow=PATIENT)
    lacking = DeepNetwork([(W, b), (V[1:], c[1:]), (top[0][:, 1:], top[1])], "relu")
    few = descend(samples, as_student(lacking, True), OPTIONS, slow=PATIENT)
    assert criterion(few, setting) > criterion(truth, setting) + 100.0
    ended = to_neighbours(samples, setting, Runs(Settled(few, (), 1), 1, 0, False)).fit
    assert not ended.student.skips
    assert ended.student.widths[1] == 3
    # One unit's parameters at the most are lost to a local minimum.
    assert criterion(ended, setting) <= criterion(truth, setting) + 6.0 * np.log(n)
