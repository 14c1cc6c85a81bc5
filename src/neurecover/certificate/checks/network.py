"""Checks of the network itself: its units, inputs, form and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neurecover.certificate.case import Case
from neurecover.certificate.checks.facts import Facts
from neurecover.certificate.verdict import Check

if TYPE_CHECKING:
    from neurecover.certificate.from_labels import Labelled

FIND_WIDTH = "Leave the number of units to be found: n_hidden=None."


def units(case: Facts | Labelled) -> Check:
    """Check that a hidden unit was found."""
    seen = case.n_units > 0
    sentence = "Hidden units were found." if seen else "No hidden unit was found: give samples on which one switches."
    return Check("units", seen, case.n_units, 1, sentence)


def units_or_line(case: Case) -> Check:
    """Check that a hidden unit was found, or that a straight line without units is as good."""
    return Check("units", True, 0, 0, "No hidden unit is called for.") if case.straight else units(case)


def straight_line(case: Case) -> Check | None:
    """State that a straight line is as good: as any number of units, or as the number that was asked for."""
    if case.straight:
        sentence = "A straight line does as well as any number of hidden units that was tried: none is seen."
        return Check("straight line", True, 0, None, sentence)
    if not case.evidence.straight:
        return None
    sentence = "A straight line does as well as this network: these samples show no hidden unit."
    return Check("straight line", False, None, None, sentence, FIND_WIDTH)


def inputs(case: Facts | Labelled) -> Check:
    """Check that the inputs span all dimensions."""
    rank, d = case.rank, case.n_inputs
    sentence = f"The inputs span all {d} dimensions."
    if rank < d:
        sentence = f"The inputs span {rank} of {d} dimensions, so the weights along the others cannot be seen."
    remedy = "Leave out input columns that follow from others, or vary them on their own."
    return Check("inputs", rank == d, rank, d, sentence, remedy)


def width(case: Facts) -> Check:
    """Check that the number of units is the one asked for; the limit is the total over all layers."""
    asked, found = case.evidence.asked, case.n_hidden
    if asked is None:
        return Check("width", True, None, None, "No number of units was asked for.")
    sentence = "The number of units is the one asked for."
    if asked != found:
        why = "these samples take no other number"
        if not case.evidence.sign_choices:
            why = "the affine part that is left over is written as pairs of units"
        sentence = f"{asked} units were asked for and {found} found: {why}."
    return Check("width", asked == found, None, int(np.sum(asked)), sentence, FIND_WIDTH)


def affine_part(case: Facts) -> Check:
    """Check that the fit has no affine part in addition to the units.

    The term C x of a single hidden layer absorbs "all" affine parts; of several layers, that from "inputs" to outputs.
    """
    choices, term = case.evidence.sign_choices, case.affine_term
    settled = choices != 0 or term == "all"
    sentences = {
        "all": "The affine term takes up whatever affine part there is beside the units.",
        "inputs": "No affine part is left beside the units and the affine term.",
    }
    sentence = sentences.get(term or "no", "No affine part is left beside the units.")
    if not settled:
        untold = ", or there is a linear term, which was not sought" if term is None else ""
        sentence = (
            f"An affine part is left that no choice of signs explains: units are missing, or never switch{untold}."
        )
    return Check("affine part", settled, choices, 1 if term is None else None, sentence)


def derivative(case: Facts) -> Check:
    """Check that the activation has a derivative."""
    there = case.differentiable
    sentence = f"{case.activation} has {'a' if there else 'no'} derivative to test the weights with."
    remedy = "Take an activation that has a derivative: without one nothing can be certified."
    return Check("derivative", there, None, None, sentence, remedy)


def size(case: Case) -> Check:
    """Check that the parameters are few enough for an information matrix or, without noise, for its products."""
    n, limit = case.n_weights, case.options.max_parameters
    if case.by_products:
        sentence = f"There are {n} parameters; their information matrix is tested by products with vectors."
        return Check("size", True, n, None, sentence)
    sentence = f"There are {n} parameters."
    if n > limit:
        sentence = f"{n} parameters are more than the {limit} whose identifiability is checked."
    remedy = "Try fewer units: more parameters than this are certified without noise only, and from samples in memory."
    return Check("size", n <= limit, n, limit, sentence, remedy)
