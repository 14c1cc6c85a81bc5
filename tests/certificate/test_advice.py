"""What to do about a verdict below statistical: said first, and right."""

import numpy as np
import pytest

import neurecover as nr
from certificate_facts import facts
from neurecover.certificate import Evidence, advice
from neurecover.certificate.certifying import CHECKS
from neurecover.certificate.checks import alternatives, determined, errors, held_out, network, residual, search, signs
from neurecover.certificate.checks.alternatives import WITH_LINE
from neurecover.certificate.evidence import LeftOut
from neurecover.certificate.residuals.nested import Nested
from neurecover.certificate.sides import Sides
from neurecover.certificate.signs.planes import NearestPlanes
from neurecover.certificate.signs.rivals import SignChoices
from neurecover.certificate.verdict import IDENTIFIABLE, NOISE, Check
from neurecover.statistics import OutputPrecision, Residuals


def teacher(activation: str, seed: int) -> nr.Network:
    drawn = nr.simulate.teacher(5, 3, random_state=seed)
    return nr.Network(2.0 * drawn.W, drawn.b, drawn.A, drawn.c, activation)


def test_another_activation_that_fits_better_is_said_first_and_once() -> None:
    X, Y = nr.simulate.sample(teacher("tanh", 11), 250, random_state=11)
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


# Of every check that can fail, what it has to see for it, and what its name makes of the verdict.
FAILING = {
    held_out.rounding: {"holdout": "poor", "rounding": np.zeros(1), "noisy": True},
    held_out.prediction: {"holdout": "poor", "rounding": np.zeros(1)},
    held_out.signal: {
        "left_out": LeftOut(1.0, 1.0, 100),
        "output_variance": np.ones(1),
        "model": nr.Network([[1.0]], None, [[1.0]]),
        "n_free": 3,
    },
    network.units_or_line: {"n_units": 0, "straight": False},
    network.straight_line: {"evidence": Evidence(3, straight=True), "straight": False},
    network.inputs: {"rank": 2, "n_inputs": 3},
    network.width: {"evidence": Evidence(3), "n_hidden": 4},
    network.affine_part: {"evidence": Evidence(3, sign_choices=0), "affine_term": None},
    network.derivative: {"differentiable": False, "activation": "step"},
    network.size: {"n_weights": 10_000, "by_products": False},
    determined.equations: {"n_equations": 100, "n_free": 250},
    determined.terms: {"unseen_terms": {"h0·h1": 0}},
    determined.contradicted: {"raw": True, "n_alone": 1, "n_equations": 100},
    determined.information: {
        "weakest": 0.0,
        "convention": False,
        "sides": Sides(np.array([0]), np.array([9]), np.array([3]), 1),
    },
    determined.columns: {"rare": np.array([[True]])},
    determined.kinks: {"sides": Sides(np.array([0]), np.array([9]), np.array([3]), 1), "few": np.array([True])},
    signs.signs: {"sign_choices": SignChoices(2, 1.0)},
    signs.planes: {"nearest_planes": NearestPlanes(2.0, (0, 1))},
    signs.exchange: {"exchange": 2.0},
    errors.digits: {"largest_error": 0.1},
    errors.precision: {"widest": 0.3},
    errors.strength: {"strength": np.array([2.0])},
    residual.tails: {"carried_by": 2.0, "n_equations": 100, "n_free": 4},
    residual.load: {"n_equations": 100, "n_free": 50},
    residual.structure: {"p_structure": 1e-9},
    residual.offset: {"bias": False, "mean_z": np.array([9.0])},
    residual.shape: {"shape": (1e-9, "a step")},
    residual.corners: {"p_corners": 1e-9},
    alternatives.linear_term: {"nested": (Nested("linear term", 1e-9, 0.05, 1),), "variance": 1.0, "n_equations": 100},
    alternatives.curvature: {"nested": (Nested("curvature", 1e-9, 0.05, 1),), "variance": 1.0, "n_equations": 100},
    alternatives.other_activation: {
        "nested": (Nested("another activation", 1e-9, 0.05, 1),),
        "variance": 1.0,
        "n_equations": 100,
    },
    residual.bends: {"bends": (np.array([0.1]), np.array([4])), "n_units": 1},
    residual.independence: {"serial_z": np.array([9.0])},
    residual.output_digits: {
        "precision": OutputPrecision(("single precision",), np.array([1e3]), 100, None),
        "holdout": "poor",
    },
    search.spare_unit: {"evidence": Evidence(None, last_drop=9.0)},
    search.convergence: {"evidence": Evidence(3, converged=False)},
    search.stopped: {"evidence": Evidence(3, converged=False)},
    search.agreement: {"evidence": Evidence(3)},
    search.rivals: {"evidence": Evidence(3, unrivalled=False)},
}
NEVER_FAIL = {determined.open_weights, determined.found_width, residual.noise_level, held_out.generalisation}


def failing(check: object) -> Check:
    """Return a check that failed, as it is made."""
    known = dict(FAILING[check])  # type: ignore[index]
    if known.get("holdout") == "poor":
        rng = np.random.default_rng(0)
        known["holdout"] = Residuals(lambda X: np.zeros((len(X), 1)), 1)
        known["holdout"].update(rng.standard_normal((50, 2)), rng.standard_normal((50, 1)))
    made = check(facts(**known))  # type: ignore[operator]
    assert made is not None
    assert not made.passed
    return made


def wide(figure: float = 0.3) -> Check:
    return errors.precision(facts(widest=figure))


def told() -> Check:
    return network.width(facts(evidence=Evidence(3), n_hidden=3))


def test_the_number_of_samples_is_what_the_failed_checks_lack() -> None:
    # Three times the error allowed: nine times the samples.
    assert advice(certificate(wide()))[0] == "Give about 900 samples or more; there are 100."
    weak = failing(errors.strength)  # half of the four standard errors wanted: four times the samples
    assert advice(certificate(weak))[0] == "Give about 400 samples or more; there are 100."
    assert advice(certificate(wide(), weak))[0] == "Give about 900 samples or more; there are 100."
    short = failing(determined.equations)
    assert advice(certificate(short))[0] == "Give about 250 samples or more; there are 100."
    assert "thousands of times" in advice(certificate(wide(50.0)))[0]


def test_where_nothing_else_is_known_it_says_what_may_be_lacking() -> None:
    rounding, structure = (Check(name, False, 1.0, 0.1, name) for name in ("rounding", "structure"))
    assert "more units" in advice(certificate(structure, rounding, told()))[0]
    assert "another activation" in advice(certificate(structure, rounding))[0]
    # Whoever has left the number of units to be found is not told to.
    assert not any("n_hidden=None" in tip for tip in advice(certificate(structure, rounding)))
    # The standard errors of a wrong network say nothing of how many samples the right one takes.
    assert "samples or more" not in " ".join(advice(certificate(structure, rounding, wide())))


def test_reasons_that_follow_from_others_come_last() -> None:
    affine, inputs = (Check(name, False, 0, 1, name) for name in ("affine part", "inputs"))
    rounding = Check("rounding", False, 1.0, 0.1, "rounding")
    assert certificate(affine, rounding, inputs).reasons[:3] == ("inputs", "affine part", "rounding")


def test_units_that_stand_for_an_affine_part_say_nothing_of_samples() -> None:
    affine, information = failing(network.affine_part), failing(determined.information)
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
    few = failing(residual.output_digits)
    assert advice(certificate(few, rounding)) == ("Give outputs with more digits.",)
    tied = OutputPrecision(("",), np.array([1e-16]), 100, np.array([40]))
    same = residual.output_digits(facts(precision=tied, noise_per_output=np.array([0.1])))
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
    two, plane, exchange = failing(signs.signs), failing(signs.planes), failing(signs.exchange)
    noisy = signs.signs(facts(noisy=True, sign_choices=SignChoices(2, 1.0)))
    unsearched = signs.signs(facts(sign_choices=SignChoices(1, complete=False, n_units=30)))
    rounding = Check("rounding", False, 1.0, 0.1, "rounding")
    assert "no samples tell" in advice(certificate(two))[0]
    assert "no samples tell" in advice(certificate(unsearched))[0]
    assert advice(certificate(noisy, rounding))[0].startswith("Give more samples or less noise")
    assert len(advice(certificate(noisy, plane, rounding))) == 2
    assert "spread wider" in advice(certificate(plane, rounding))[0]
    assert "columns of two values" in advice(certificate(exchange))[0]


def test_what_one_sentence_says_is_not_said_twice() -> None:
    information, kinks = failing(determined.information), failing(determined.kinks)
    assert len(advice(certificate(information, kinks))) == 1
    tips = advice(certificate(information, failing(determined.columns)))
    assert tips[0].startswith("Give rows in which every input differs")
    tips = advice(certificate(failing(network.affine_part), failing(network.width)))
    assert not any("n_hidden=None" in tip for tip in tips)


def test_noise_that_hides_the_prediction_is_not_called_a_lack_of_units() -> None:
    prediction, rounding = Check("prediction", False, 0.2, 0.9, "prediction"), Check("rounding", False, 1.0, 0.1, "")
    assert advice(certificate(prediction, rounding, wide()))[0] == "Give about 900 samples or more; there are 100."


def test_a_unit_that_may_not_exist_is_left_to_be_found_where_it_was_asked_for() -> None:
    weak = failing(errors.strength)
    assert any("n_hidden=None" in tip for tip in advice(certificate(weak, told())))
    assert not any("n_hidden=None" in tip for tip in advice(certificate(weak)))


def test_every_check_of_the_table_can_fail_or_never_does() -> None:
    assert {row.check for row in CHECKS} == {*FAILING, *NEVER_FAIL}
    assert {failing(check).name for check in FAILING} >= {*IDENTIFIABLE, *NOISE} - {"generalisation"}


DECIDING = [check for check in FAILING if failing(check).name in {*IDENTIFIABLE, *NOISE} - {"units"}]


@pytest.mark.parametrize("check", DECIDING, ids=lambda check: f"{check.__module__.rsplit('.')[-1]}.{check.__name__}")
def test_whatever_failed_there_is_something_to_do(check: object) -> None:
    made = failing(check)
    noisy = [Check("rounding", False, 1.0, 0.1, "rounding")] if made.name in NOISE else []
    assert advice(certificate(made, *noisy))


def test_digits_that_an_offset_has_used_up_are_to_be_had_by_centring() -> None:
    found = nr.Certificate((failing(errors.digits), Check("prediction", True, 1.0, 0.9, "")), 0.0, None, 100, 10)
    assert found.verdict == "approximate"
    assert "subtract their mean" in advice(found)[0]


def test_a_network_that_fits_to_rounding_is_all_there_is_to_try() -> None:
    better = Check("activation", True, 1e9, None, "abs fits these samples to rounding: try activation='abs'.")
    line = Check("structure", False, 0.0, 0.01, "", WITH_LINE)
    assert advice(certificate(line, wide(), better)) == (better.sentence,)


def test_a_lack_that_has_a_name_comes_before_those_that_it_could_be_and_is_not_repeated() -> None:
    line = Check("structure", False, 0.0, 0.01, "", WITH_LINE)
    rounding = Check("rounding", False, 1.0, 0.1, "")
    first, second = advice(certificate(line, rounding))
    assert first == WITH_LINE
    assert "another activation" in second
    assert "linear term" not in second


def test_labels_that_no_set_explains_are_not_said_to_lack_layers() -> None:
    checks = Check("labels", True, None, None, ""), Check("structure", False, 1.0, 3.0, "")
    (said,) = advice(certificate(*checks))
    assert "halfspaces" in said
