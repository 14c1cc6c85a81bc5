"""Held-out samples stay held out: where some join the fit, others that nothing has looked at judge."""

import numpy as np
import pytest

from certificate_facts import facts
from neurecover.certificate import Evidence
from neurecover.certificate.checks import held_out
from neurecover.data import ArraySource, Prepared, Source, prepare_samples, with_misfits
from neurecover.data.options import PrepareOptions
from neurecover.statistics import Residuals


class Watched:
    """A model that answers all rows but some, and keeps what it was asked."""

    def __init__(self, given: Prepared, wrong: np.ndarray) -> None:
        rows = zip(*given.samples.collect())
        self.answers, self.seen = {row.tobytes(): answer for row, answer in rows}, set()
        self.wrong = {row.tobytes() for row in wrong}

    def __call__(self, X: np.ndarray) -> np.ndarray:
        rows = [row.tobytes() for row in X]
        self.seen |= set(rows)
        return np.array([self.answers[row] + (row in self.wrong) for row in rows]).reshape(len(X), 1)


def samples(n: int = 600) -> Prepared:
    rng = np.random.default_rng(0)
    return prepare_samples(ArraySource(rng.standard_normal((n, 3)), rng.standard_normal((n, 1))), True, rng)


def rows_of(source: Source) -> set[bytes]:
    return {row.tobytes() for row in source.collect()[0]}


def test_nothing_looks_at_those_that_judge() -> None:
    given = samples()
    Z = given.holdout.collect()[0]
    model = Watched(given, Z[[7, 30]])
    after = with_misfits(given, model, 1e-20)
    assert after is not None
    assert after.sealed is after.judges
    assert not rows_of(after.judges) & model.seen
    assert after.judges.count() == max(PrepareOptions().fewest, len(Z) // 10)
    joined = rows_of(after.train) - rows_of(given.train)
    assert joined <= {Z[7].tobytes(), Z[30].tobytes()}
    assert len(joined) == after.n_joined > 0
    # All parts together are the samples, each once, and further ones that join are not of those that judge either.
    assert after.train.count() + after.holdout.count() + after.judges.count() == given.train.count() + len(Z)
    later = Watched(given, after.holdout.collect()[0][:2])
    again = with_misfits(after, later, 1e-20)
    assert again is not None
    assert again.n_joined == after.n_joined + 2
    assert rows_of(again.judges) == rows_of(after.judges)
    assert not rows_of(again.judges) & later.seen


def test_few_of_many_judge() -> None:
    """More would more often hold a row that alone shows a switch, on which a right network fails."""
    given = samples(4_000)
    after = with_misfits(given, Watched(given, given.holdout.collect()[0][[7, 8, 9]]), 1e-20)
    assert after is not None
    assert after.judges.count() == PrepareOptions().sealed < given.holdout.count() // 10


def test_a_model_that_is_wrong_where_it_judges_does_not_pass() -> None:
    given = samples()
    first = with_misfits(given, Watched(given, given.holdout.collect()[0][[7, 8]]), 1e-20)
    assert first is not None
    wrong = Watched(given, first.judges.collect()[0])
    assert with_misfits(first, wrong, 1e-20) is None  # those that were looked at are all answered
    Z, Y = first.judges.collect()
    left = Residuals(wrong, 1)
    left.update(Z, Y)
    assert left.rms.min() > 0.5


def test_without_misfits_all_held_out_samples_judge() -> None:
    given = samples()
    assert with_misfits(given, Watched(given, np.zeros((0, 3))), 1e-20) is None
    assert given.judges is given.holdout


@pytest.mark.parametrize("n", [60, 100])
def test_too_few_are_not_divided(n: int) -> None:
    given = samples(n)
    Z = given.holdout.collect()[0]
    assert with_misfits(given, Watched(given, Z[1:2]), 1e-20) is None


def test_the_check_says_what_was_done() -> None:
    left = Residuals(lambda X: np.zeros((len(X), 1)), 1)
    left.update(np.zeros((15, 2)), np.zeros((15, 1)))
    case = facts(holdout=left, rounding=np.full(1, 1e-13), evidence=Evidence(3, joined=4))
    sentence = held_out.rounding(case).sentence
    assert sentence.startswith("4 held-out samples were fitted after all. On 15 others, which nothing had looked at,")
    assert held_out.rounding(facts(holdout=left, rounding=np.ones(1))).sentence.startswith("On 15 held-out samples the")
