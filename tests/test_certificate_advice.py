"""What to do about a verdict below statistical: said first, and right."""

import numpy as np

import neurecover as nr
from neurecover.certificate import advice
from neurecover.certificate.checks import equations, precision
from neurecover.certificate.verdict import IDENTIFIABLE, NOISE, Check


def teacher(activation: str, seed: int) -> nr.Network:
    drawn = nr.simulate.teacher(5, 3, random_state=seed)
    return nr.Network(2.0 * drawn.W, drawn.b, drawn.A, drawn.c, activation)


def test_another_activation_that_fits_better_is_said_first_and_once() -> None:
    X, Y = nr.simulate.sample(teacher("tanh", 11), 800, random_state=11)
    recovery = nr.recover(X, Y, n_hidden=3, random_state=0)
    assert recovery.certificate.verdict in ("approximate", "failed")
    first = advice(recovery.certificate)[0]
    assert "activation='tanh'" in first
    rows = recovery.rows()
    labels = [label for label, _ in rows]
    assert labels.index("try") < labels.index("because")
    assert [text for _, text in rows].count(first) == 1


def test_a_right_network_gets_no_advice() -> None:
    X, Y = nr.simulate.sample(teacher("relu", 13), 600, random_state=13)
    recovery = nr.recover(X, Y, n_hidden=3, random_state=0)
    assert recovery.certificate.verdict == "exact"
    assert advice(recovery.certificate) == ()
    assert "try" not in [label for label, _ in recovery.rows()]


def certificate(*failed: Check, n: int = 100) -> nr.Certificate:
    passed = [Check(name, True, None, None, name) for name in (*IDENTIFIABLE, *NOISE, "prediction")]
    names = {check.name for check in failed}
    return nr.Certificate((*(check for check in passed if check.name not in names), *failed), 0.1, None, n, 10)


def test_the_number_of_samples_is_what_the_failed_checks_lack() -> None:
    wide = precision(0.3, np.array([10.0]), 100)[0]  # three times the error allowed: nine times the samples
    assert not wide.passed
    assert advice(certificate(wide))[0] == "Give about 900 samples or more; there are 100."
    weak = precision(0.01, np.array([2.0]), 100)[1]  # half of the four standard errors wanted: four times the samples
    assert advice(certificate(weak))[0] == "Give about 400 samples or more; there are 100."
    assert advice(certificate(wide, weak))[0] == "Give about 900 samples or more; there are 100."
    short = equations(100, 250, 100)
    assert advice(certificate(short))[0] == "Give about 250 samples or more; there are 100."
    hopeless = precision(50.0, np.array([10.0]), 100)[0]
    assert "thousands of times" in advice(certificate(hopeless))[0]


def test_where_nothing_else_is_known_it_says_what_may_be_lacking() -> None:
    rounding, structure = (Check(name, False, 1.0, 0.1, name) for name in ("rounding", "structure"))
    assert "more units" in advice(certificate(structure, rounding))[0]
    # The standard errors of a wrong network say nothing of how many samples the right one takes.
    wide = precision(0.3, np.array([10.0]), 100)[0]
    assert "samples or more" not in " ".join(advice(certificate(structure, rounding, wide)))


def test_reasons_that_follow_from_others_come_last() -> None:
    affine, inputs = (Check(name, False, 0, 1, name) for name in ("affine part", "inputs"))
    rounding = Check("rounding", False, 1.0, 0.1, "rounding")
    assert certificate(affine, rounding, inputs).reasons[:3] == ("inputs", "affine part", "rounding")


def test_units_that_stand_for_an_affine_part_say_nothing_of_samples() -> None:
    affine, information = (Check(name, False, 0, 1, name) for name in ("affine part", "information"))
    rounding = Check("rounding", False, 1.0, 0.1, "rounding")
    assert not any("spread" in tip for tip in advice(certificate(affine, information, rounding)))
    assert any("spread" in tip for tip in advice(certificate(information, rounding)))
    assert advice(certificate(affine, information))[0].startswith("Try activation='leaky_relu")


def test_few_noisy_samples_that_determine_no_weights_want_more() -> None:
    """20 equations for 16 parameters: the spare unit that noise bought leaves the information singular."""
    truth = nr.simulate.teacher(4, 2, random_state=0)
    X, Y = nr.simulate.sample(truth, 400, noise=0.05, random_state=0)
    for n in (16, 20, 24):
        found = nr.recover(X[:n], Y[:n], random_state=0)
        assert found.certificate.verdict in ("approximate", "failed")
        assert advice(found.certificate)[0].startswith("Give about")
        assert "samples or more" in advice(found.certificate)[0]
