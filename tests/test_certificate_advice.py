"""What to do about a verdict below statistical: said first, and right."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate import advice, checks
from neurecover.certificate.checks import equations, precision
from neurecover.certificate.verdict import IDENTIFIABLE, NOISE, Check
from neurecover.statistics import OutputPrecision


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
    told = checks.width(checks.Evidence(asked=3), 3)
    assert "more units" in advice(certificate(structure, rounding, told))[0]
    assert "another activation" in advice(certificate(structure, rounding))[0]
    # Whoever has left the number of units to be found is not told to.
    assert not any("n_hidden=None" in tip for tip in advice(certificate(structure, rounding)))
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
    assert advice(certificate(affine, information))[0].startswith("Try affine=True")


def test_few_noisy_samples_that_determine_no_weights_want_more() -> None:
    """20 equations for 16 parameters: the spare unit that noise bought leaves the information singular."""
    truth = nr.simulate.teacher(4, 2, random_state=0)
    X, Y = nr.simulate.sample(truth, 400, noise=0.05, random_state=0)
    for n in (16, 20):
        found = nr.recover(X[:n], Y[:n], random_state=0)
        assert found.certificate.verdict in ("approximate", "failed")
        assert advice(found.certificate)[0].startswith("Give about")
        assert "samples or more" in advice(found.certificate)[0]


def test_outputs_with_ties_want_another_thing_than_outputs_with_few_digits() -> None:
    """Digits help where the grid is coarse, not where an output is clipped or no unit is on."""
    rounding = Check("rounding", False, 1.0, 0.1, "rounding")
    coarse, none = OutputPrecision(("single precision",), np.array([0.5]), 100, None), np.zeros(1)
    few = checks.output_digits(coarse, np.array([1.0]), none)
    assert advice(certificate(few, rounding)) == ("Give outputs with more digits.",)
    tied = OutputPrecision(("",), np.array([1e-16]), 100, np.array([40]))
    same = checks.output_digits(tied, np.array([1.0]), np.array([0.1]))
    assert not same.passed
    assert "before they were clipped or rounded" in advice(certificate(same, rounding))[0]


def test_units_that_are_all_off_for_many_samples_are_not_told_to_have_more_digits() -> None:
    """The noise is on the inputs, and where no unit is on the output has none of it."""
    truth = nr.Network([[1.0, 0.2, -0.4], [0.1, 1.0, 0.3]], [-0.5, -0.3], [[1.0, -1.5]])
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 3))
    found = nr.recover(X + 0.1 * rng.standard_normal(X.shape), truth(X), n_hidden=2, random_state=0)
    assert found.certificate.verdict in ("approximate", "failed")
    tips = advice(found.certificate)
    assert not any("more digits" in tip for tip in tips)
    assert any("in the inputs" in tip for tip in tips)


def test_other_signs_that_fit_are_not_put_down_to_samples_without_noise() -> None:
    two, plane = checks.signs(2, 1.0, True, 3), checks.twins(2.0, (0, 1))
    rounding = Check("rounding", False, 1.0, 0.1, "rounding")
    assert "no samples tell" in advice(certificate(two))[0]
    assert "no samples tell" in advice(certificate(checks.signs(1, 0.0, False, 30)))[0]
    assert advice(certificate(two, rounding))[0].startswith("Give more samples or less noise")
    assert len(advice(certificate(two, plane, rounding))) == 2
    assert "spread wider" in advice(certificate(plane, rounding))[0]


def test_what_one_sentence_says_is_not_said_twice() -> None:
    def failed(*names: str) -> nr.Certificate:
        return certificate(*(Check(name, False, 0, 1, name) for name in names))

    assert len(advice(failed("information", "kinks"))) == 1
    assert advice(failed("information", "columns"))[0].startswith("Give rows in which every input differs")
    assert not any("n_hidden=None" in tip for tip in advice(failed("affine part", "width")))


def test_noise_that_hides_the_prediction_is_not_called_a_lack_of_units() -> None:
    prediction, rounding = Check("prediction", False, 0.2, 0.9, "prediction"), Check("rounding", False, 1.0, 0.1, "")
    wide = precision(0.3, np.array([10.0]), 100)[0]
    assert advice(certificate(prediction, rounding, wide))[0] == "Give about 900 samples or more; there are 100."


def test_a_unit_that_may_not_exist_is_left_to_be_found_where_it_was_asked_for() -> None:
    weak = precision(0.01, np.array([2.0]), 100)[1]
    told = checks.width(checks.Evidence(asked=3), 3)
    assert any("n_hidden=None" in tip for tip in advice(certificate(weak, told)))
    assert not any("n_hidden=None" in tip for tip in advice(certificate(weak)))


@pytest.mark.parametrize("name", [*IDENTIFIABLE, *NOISE])
def test_whatever_failed_there_is_something_to_do(name: str) -> None:
    noisy = [Check("rounding", False, 1.0, 0.1, "rounding")] if name in NOISE else []
    assert advice(certificate(Check(name, False, 0.5, 1.0, name), *noisy)) or name == "units"


def test_digits_that_an_offset_has_used_up_are_to_be_had_by_centring() -> None:
    found = nr.Certificate((checks.digits(0.1), Check("prediction", True, 1.0, 0.9, "")), 0.0, None, 100, 10)
    assert found.verdict == "approximate"
    assert "centred" in advice(found)[0]
