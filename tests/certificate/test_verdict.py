"""The verdict follows from the checks, and no other place gives one."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate.verdict import IDENTIFIABLE, NEEDS, NOISE, Check, verdict_of

SOURCE = Path(nr.__file__).parent
EVERY = tuple(dict.fromkeys(name for names in NEEDS.values() for name in names))


def checks(**failed: bool) -> tuple[Check, ...]:
    return tuple(Check(name, not failed.get(name.replace(" ", "_"), False), 1.0, 1.0, f"{name}.") for name in EVERY)


def test_all_passed_is_exact_and_each_check_is_needed() -> None:
    assert verdict_of(checks()) == "exact"
    for name in NEEDS["exact"]:
        assert verdict_of(checks(**{name.replace(" ", "_"): True})) != "exact"
    for name in (*IDENTIFIABLE, *NOISE):
        assert verdict_of(checks(rounding=True, **{name.replace(" ", "_"): True})) == "approximate"
    assert verdict_of(checks(rounding=True)) == "statistical"
    assert verdict_of(checks(prediction=True, units=True)) == "failed"


def test_what_was_not_checked_counts_against_the_network() -> None:
    for left_out in EVERY:
        made = tuple(check for check in checks() if check.name != left_out)
        for verdict in ("exact", "statistical", "approximate"):
            if left_out in NEEDS[verdict]:
                assert verdict_of(made) != verdict
    assert verdict_of(()) == "failed"


def test_failing_one_more_check_never_improves_the_verdict() -> None:
    rank = {"exact": 0, "statistical": 1, "approximate": 2, "failed": 3}
    names, tried = ("rounding", "units", "digits", "tails", "prediction"), 0
    for size in range(len(names)):
        for failed in itertools.combinations(names, size):
            before = verdict_of(checks(**dict.fromkeys(failed, True)))
            for more in set(names) - set(failed):
                after = verdict_of(checks(**dict.fromkeys((*failed, more), True)))
                assert rank[after] >= rank[before] or (before, after) == ("statistical", "exact")
                tried += 1
    assert tried == 5 * 2**4  # every set of the others beside each of five


def test_a_second_failed_check_of_one_name_counts() -> None:
    made = (*checks(), Check("kinks", False, 1.0, 2.0, "Another layer."))
    assert verdict_of(made) == "approximate"


def test_no_other_file_gives_a_verdict() -> None:
    """Certificates are built where the checks are put together, and read back from files."""
    pattern = re.compile(r"\bCertificate\(")
    builders = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if pattern.search(file.read_text(encoding="utf-8").replace("class Certificate(", ""))
    }
    assert builders == {
        "certificate/certifying.py",
        "certificate/from_labels.py",
        "certificate/from_segments.py",
        "results.py",
    }


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_reasons_begin_with_what_decided(noise: float) -> None:
    truth = nr.simulate.teacher(4, 3, random_state=1)
    X, Y = nr.simulate.sample(truth, 2_000, noise=noise, random_state=1)
    good = nr.recover(X, Y, 3, random_state=0).certificate
    assert good.verdict == ("statistical" if noise else "exact")
    assert verdict_of(good.checks) == good.verdict
    assert any(check.sentence == good.reasons[0] for check in good.checks)
    twice = nr.recover(np.hstack([X, X[:, :1]]), Y, 3, random_state=0).certificate
    assert twice.verdict == "approximate"
    assert "span 4 of 5 dimensions" in twice.reasons[0]
    assert all(isinstance(check.sentence, str) and check.sentence.endswith(".") for check in twice.checks)


def test_two_ways_to_the_information_agree() -> None:
    """One hidden layer has sums of its own; the Jacobian of any network gives the same errors, to rounding."""
    from neurecover.certificate import Case, Evidence, certify
    from neurecover.certificate.information.matrix import Information
    from neurecover.certificate.information.normal_form import ToNormalForm, aligned
    from neurecover.data import ArraySource, prepare_samples, reduce
    from neurecover.statistics import InformationSums, Residuals

    rng = np.random.default_rng(0)
    truth = nr.simulate.teacher(5, 4, 2, random_state=0)
    X = rng.standard_normal((3_000, 5)) * [1.0, 2.0, 3.0, 0.5, 1.0] + 3.0
    Y = truth(X) + 0.05 * rng.standard_normal((3_000, 2))
    given = prepare_samples(ArraySource(X, Y), True, rng)
    W = np.linalg.solve(given.whitening.matrix, truth.W.T).T
    on_white = nr.Network(W, truth.b + truth.W @ given.whitening.mean, truth.A, truth.c)
    np.testing.assert_allclose(on_white(given.whitening.inputs(X)), truth(X), atol=1e-9)
    white, normal = aligned(on_white, given.whitening)
    first = Information.of(reduce(given.samples, InformationSums.of(white)))
    second = Information.of(reduce(given.samples, InformationSums(white)))
    np.testing.assert_allclose(first.F, second.F, rtol=1e-9, atol=1e-9 * np.abs(first.F).max())
    T = ToNormalForm(second.model, second.free, normal, given.whitening)
    C = T(T(second.inverse).T)
    lengths = np.zeros(len(C))
    lengths[:5] = normal.W[0]
    assert lengths @ C @ lengths < 1e-12 * np.trace(C)  # a row keeps its length
    holdout = reduce(given.holdout, Residuals(on_white, 2, 4, given.output_mean))
    evidence = Evidence(4, agreements=1)
    deep = nr.DeepNetwork([(on_white.W, on_white.b), (on_white.A, on_white.c)])
    ours = certify(Case(on_white, given.whitening, given.samples, holdout, evidence, np.random.default_rng(1)))
    evidence = Evidence((4,), agreements=1)
    theirs = certify(Case(deep, given.whitening, given.samples, holdout, evidence, np.random.default_rng(1)))
    assert ours.verdict == theirs.verdict == "statistical"
    for one, other in zip("WbAc", ("W1", "b1", "W2", "b2")):
        np.testing.assert_allclose(ours.standard_errors[one], theirs.standard_errors[other], rtol=1e-8)
