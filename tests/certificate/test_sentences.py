"""What the checks say: units that were asked for, samples that would do, units that would have shown."""

import numpy as np
import pytest

import neurecover as nr
from certificate_facts import facts
from neurecover.certificate.checks import errors
from neurecover.certificate.checks.facts import would_do
from neurecover.pipeline.options import PipelineOptions


@pytest.mark.usefixtures("steps_for_seconds")
def test_a_width_that_is_not_kept_is_said() -> None:
    """Asking for too few units leaves an affine part, which is written as pairs of units."""
    told = 0
    for seed in range(2):
        truth = nr.simulate.teacher(4, 6, 1, random_state=seed)
        X, Y = nr.simulate.sample(truth, 600, random_state=seed)
        found = nr.recover(X, Y, 2, random_state=seed, time_budget=0.5)
        assert found.certificate.verdict in ("approximate", "failed")
        if found.network.n_hidden != 2:
            told += 1
            said = f"2 units were asked for and {found.network.n_hidden} found"
            assert any(said in reason for reason in found.certificate.reasons)
    assert told >= 1


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_as_many_samples_as_parameters_end_in_a_verdict(noise: float) -> None:
    truth = nr.simulate.teacher(3, 3, 1, random_state=1)  # 13 parameters that can be determined
    for n in range(13, 25, 3):
        X, Y = nr.simulate.sample(truth, n, noise=noise, random_state=n)
        verdict = nr.recover(X, Y, 3, random_state=0, time_budget=0.5).certificate.verdict
        assert verdict != "statistical"


def test_samples_that_would_do() -> None:
    assert would_do(100 * 2.34) == " About 240 samples would do."
    assert would_do(7.2) == " About 8 samples would do."
    assert would_do(np.inf) == ""
    wide = errors.precision(facts(widest=0.2, n_samples=1_000))
    weak = errors.strength(facts(strength=np.array([2.0]), n_samples=1_000))
    assert "About 4,000 samples would do." in wide.sentence
    assert "About 4,000 samples would do." in weak.sentence


@pytest.mark.usefixtures("steps_for_seconds")
def test_twice_the_samples_of_the_sentence_bring_the_errors_to_the_limit() -> None:
    first = PipelineOptions(narrow=np.inf)  # errors to first order alone have a fixed limit
    reached = tried = 0
    for seed in range(8):
        truth = nr.simulate.teacher(4, 2, 1, bias=0.3, random_state=seed)
        X, Y = nr.simulate.sample(truth, 5_000, noise=0.3, random_state=seed)
        few = nr.recover(X[:80], Y[:80], 2, random_state=0, time_budget=1.0, options=first).certificate
        said = [check for check in few.checks if check.name == "precision" and not check.passed]
        if not said or said[0].figure > 0.5:  # beyond, errors are no longer those of a linear model
            continue
        n = int(said[0].sentence.split("About ")[1].split(" samples")[0].replace(",", ""))
        many = nr.recover(X[: 2 * n], Y[: 2 * n], 2, random_state=0, time_budget=2.0, options=first).certificate
        tried += 1
        reached += any(check.name == "precision" and check.passed for check in many.checks)
    assert tried >= 2
    assert reached >= tried - 1


def test_a_unit_that_the_sentence_excludes_is_not_seen_and_a_larger_one_is() -> None:
    """One more unit, whose part of the output is a tenth and ten times the size that the sentence gives."""
    seen, tried = {0.1: 0, 10.0: 0}, 0
    for seed in range(2):
        truth = nr.simulate.teacher(4, 3, 1, bias=0.3, random_state=seed)
        X, Y = nr.simulate.sample(truth, 1_000, noise=0.1, random_state=seed)
        found = nr.recover(X, Y, random_state=0).certificate
        size = [check.figure for check in found.checks if check.name == "found width"]
        if not size:
            continue
        tried += 1
        w = np.random.default_rng(seed).standard_normal(4)
        part = np.maximum(X @ w, 0.0)
        for times in seen:
            more = nr.recover(X, Y + times * size[0] * part[:, None] / np.sqrt(np.mean(part**2)), None, random_state=0)
            seen[times] += more.network.n_hidden > 3
    assert tried
    assert seen == {0.1: 0, 10.0: tried}
