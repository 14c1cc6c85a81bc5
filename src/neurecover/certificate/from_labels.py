"""The certificate of halfspaces that were learned from labels.

Labels are either right or wrong, so no boundary is ever exact, and the best verdict is `statistical`. It has four
conditions: held-out labels are wrong no more often than label noise and the errors of the boundaries explain; wrong
labels lie like randomly flipped ones; the samples need every halfspace and no further one; and the errors are small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from neurecover.certificate.checks import network
from neurecover.certificate.checks.facts import Row, run_checks, would_do
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays, verdict_of


@dataclass(frozen=True)
class WrongLabels:
    """The labels on the wrong side beyond the errors of the boundary, and p-values for randomly flipped labels.

    `at_boundary` is the probability that they lie as near to the boundary, `together` as near to each other.
    """

    count: int
    at_boundary: float
    together: float


@dataclass(frozen=True)
class Rival:
    """The best curved boundary: its `degree`, and its BIC minus that of the union, `gap`; (inf, 0) without one."""

    gap: float
    degree: int


@dataclass(frozen=True)
class Corners:
    """A union compared with rounded corners and with bent faces, by differences of deviance or BIC.

    `rounded` is how far the best rounding of all corners lowers the deviance, and `material` how far a rounding that is
    large enough to matter raises it (inf if no corner can be rounded). `chamfer` is the BIC of rounded corners with one
    halfspace less, `bent` that with one face bent and `bowed` that with all of them, each minus the BIC of the union;
    inf where there is no such rival, as in one dimension.
    """

    rounded: float
    chamfer: float
    material: float
    bent: float
    bowed: float


@dataclass(frozen=True)
class Labelled:
    """What labels have shown of k halfspaces.

    `share` is the share of labels inside. `wrong` of the n_holdout held-out labels are on the wrong side, while the
    model of the other samples expects the rate `expected`; the rarer class has n_rarer of them. `flipped` is the larger
    share of wrong labels of the two sides, two standard errors added. `fewer`, `more` and
    `none` are the BIC with one halfspace less, one more, or none, minus that of k; nan if not tried. `explained` says
    whether label noise accounts for all wrong labels, `worth` is what an explained label adds to the log-likelihood,
    and `further` how many labels one more halfspace explains. `errors` are the standard errors of normals (k, d) and
    thresholds (k,); `turn` is the largest expected angle, and `shift` the largest expected error of a threshold, in
    standard deviations of the inputs.
    """

    n_samples: int
    share: float
    rank: int
    n_inputs: int
    n_holdout: int
    wrong: int
    expected: float
    n_rarer: int
    flipped: float
    n_halfspaces: int
    fewer: float
    more: float
    none: float
    explained: bool
    wrong_labels: WrongLabels
    rival: Rival
    corners: Corners
    worth: float
    further: float
    turn: float
    shift: float
    errors: ParameterArrays
    options: CertificateOptions = DEFAULTS

    @property
    def n_units(self) -> int:
        return self.n_halfspaces


def certify_labelled(seen: Labelled) -> Certificate:
    """Return the certificate of a union or an intersection."""
    made = run_checks(CHECKS, seen)
    errors = seen.errors if verdict_of(made) == "statistical" else None
    return Certificate(made, seen.wrong / seen.n_holdout, None, seen.n_samples, seen.n_holdout, errors)


def _labels(seen: Labelled) -> Check:
    sentence = f"{seen.n_samples} labels, {seen.share:.1%} of them inside, {seen.n_holdout} held out."
    return Check("labels", True, seen.n_samples, None, sentence)


def _prediction(seen: Labelled) -> Check:
    avoided = 1.0 - seen.wrong / seen.n_rarer if seen.n_rarer else float(seen.wrong == 0)
    limit = seen.options.labels.predicts
    good = avoided >= limit
    less = "" if good else f", less than {limit:.0%}"
    sentence = f"It avoids {max(avoided, 0.0):.0%} of the mistakes that a constant makes on held-out labels{less}."
    return Check("prediction", good, avoided, limit, sentence)


def _signal(seen: Labelled) -> Check:
    clear = seen.none >= seen.options.labels.sure
    sentence = f"Labels that do not depend on the inputs have a criterion {seen.none:.1f} above that of the halfspaces."
    if not clear:
        sentence = f"Labels that do not depend on the inputs explain them as well (BIC differs by {seen.none:.1f})."
    return Check("signal", clear, seen.none, seen.options.labels.sure, sentence)


def _majority(seen: Labelled) -> Check:
    """Check that labels are more often right than wrong on either side: beyond one half the sides change places."""
    clear = seen.flipped < 0.5
    sentence = f"On either side most labels are right: at most {seen.flipped:.1%} are wrong."
    if not clear:
        sentence = (
            f"On one side up to {seen.flipped:.0%} of the labels are wrong, two standard errors included: as many as "
            "where labels do not follow the halfspaces."
        )
    return Check("majority", clear, seen.flipped, 0.5, sentence)


def _generalisation(seen: Labelled) -> Check:
    """Check the number of wrong held-out labels, which is binomial if the model is right."""
    p_value = float(bdtrc(seen.wrong - 1, seen.n_holdout, min(seen.expected, 1.0))) if seen.wrong else 1.0
    sentence = (
        f"{seen.wrong} of {seen.n_holdout} held-out labels are on the wrong side; flipped labels and the errors of the "
        f"boundaries explain {seen.expected * seen.n_holdout:.1f} (p = {p_value:.2g})."
    )
    return Check("generalisation", p_value >= seen.options.significance, p_value, seen.options.significance, sentence)


def _structure(seen: Labelled) -> Check:
    """Check that wrong labels lie like randomly flipped ones: anywhere, and no nearer to each other than by chance."""
    wrong, limit = seen.wrong_labels, seen.options.labels.pattern
    p_value = min(wrong.at_boundary, wrong.together)
    fewest = seen.options.labels.fewest_wrong
    if 0 < wrong.count < fewest:
        sentence = (
            f"Labels clearly on the wrong side: {wrong.count}. They are too few to show whether they are flipped or "
            "the set has another part there. More samples would tell."
        )
        return Check("structure", False, wrong.count, fewest, sentence)
    sentence = "Wrong labels lie like flipped ones: no nearer to the boundary or to each other than by chance."
    if wrong.at_boundary < limit:
        sentence = (
            f"The boundary has another shape: wrong labels gather at it (p = {wrong.at_boundary:.1g}), and flipped "
            "ones would lie everywhere."
        )
    elif wrong.together < limit:
        sentence = (
            f"The set has another shape: wrong labels lie next to each other (p = {wrong.together:.1g}), and flipped "
            "ones would be apart."
        )
    return Check("structure", p_value >= limit, p_value, limit, sentence)


def _shape(seen: Labelled) -> Check:
    """Check that no curved boundary explains the labels better, or with fewer parameters, and no bent face."""
    rival, limit, bent, bowed = seen.rival, seen.options.labels.curved, seen.corners.bent, seen.corners.bowed
    sentence = "No curved boundary of low degree explains the labels as well."
    if rival.gap < limit:
        than = "lower" if rival.gap < 0.0 else "higher"
        sentence = (
            f"A curved boundary explains the labels as well: that of a polynomial of degree {rival.degree} has a "
            f"criterion {abs(rival.gap):.1f} {than} than that of {seen.n_halfspaces} halfspaces."
        )
    elif bent < limit:
        than = "lower" if bent < 0.0 else "higher"
        sentence = f"A face is bent: with a quadratic term beside it the criterion is {abs(bent):.1f} {than}."
    elif bowed < 0.0:
        sentence = f"The faces are bent: with one curvature for all of them the criterion is {-bowed:.1f} lower."
        return Check("shape", False, bowed, 0.0, sentence)
    gap = min(rival.gap, bent)
    return Check("shape", gap >= limit, gap, limit, sentence)


def _corners(seen: Labelled) -> Check:
    """Check that boundaries meet in corners, and that the labels would have shown it if they did not."""
    corners, limits = seen.corners, seen.options.labels
    passed, figure, limit = corners.material >= limits.apart, corners.material, limits.apart
    sentence = "No rounding of the corners explains the labels as well, or they are too far out to matter."
    if not passed:
        sentence = (
            f"Corners rounded off on {limits.rounded:.0%} of the inputs explain the labels as well (the deviance "
            f"differs by {figure:.1f}). More samples tell."
        )
    if corners.chamfer < limits.curved:
        passed, figure, limit = False, corners.chamfer, limits.curved
        than = "lower" if figure < 0.0 else "higher"
        sentence = (
            "One halfspace may be the rounding of a corner: without it, rounded corners have a criterion "
            f"{abs(figure):.1f} {than}."
        )
    if corners.rounded >= limits.apart:
        passed, figure, limit = False, corners.rounded, limits.apart
        sentence = f"The corners are rounded: that lowers the deviance of the labels by {figure:.1f}."
    return Check("corners", passed, figure if np.isfinite(figure) else None, limit, sentence)


def _strength(seen: Labelled) -> Check:
    gap = seen.none if np.isnan(seen.fewer) else seen.fewer
    called = gap >= seen.options.labels.sure
    sentence = f"With one halfspace less the criterion is {gap:.1f} higher: all {seen.n_halfspaces} are called for."
    if not called:
        sentence = f"The number of halfspaces is not certain: with one less the criterion differs by only {gap:.1f}."
    return Check("strength", called, gap, seen.options.labels.sure, sentence)


def _spare(seen: Labelled) -> Check:
    enough = seen.explained and seen.more >= seen.options.labels.sure and seen.further < seen.options.labels.outermost
    sentence = f"With one halfspace more the criterion is {seen.more:.1f} higher: no further one is called for."
    if not seen.explained:
        sentence = "The number of halfspaces is not certain: some samples inside stay unexplained."
    elif np.isnan(seen.more):
        sentence = "The number of halfspaces is not certain: the samples are too few to try one more."
    elif seen.more < seen.options.labels.sure:
        sentence = f"The number of halfspaces is not certain: with one more the criterion differs by {seen.more:.1f}."
    elif not enough:
        sentence = f"The number of halfspaces is not certain: one more explains {seen.further:.1f} labels."
    return Check("spare unit", enough, None if np.isnan(seen.more) else seen.more, seen.options.labels.sure, sentence)


def _precision(seen: Labelled) -> Check:
    widest, limit = max(seen.turn, seen.shift), seen.options.wide
    sentence = f"An angle of {seen.turn:.2g} is to be expected between a normal and the true one"
    if widest <= limit:
        return Check("precision", True, widest, limit, f"{sentence}.")
    # Errors of a boundary fall as 1/n.
    wanted = seen.n_samples * widest / limit
    offset = f", and {seen.shift:.2g} standard deviations between thresholds"
    tail = f": too wide to be an answer.{would_do(wanted)}"
    return Check("precision", False, widest, limit, sentence + offset + tail)


def _resolution(seen: Labelled) -> Check:
    """State which further halfspace would go unnoticed; this does not affect the verdict.

    One more halfspace costs (d + 1) log n of BIC, and a label that it explains gains 2 log (1 − η₁)/η₀. A boundary
    between two true ones misclassifies half of the samples between them.
    """
    least = ((seen.n_inputs + 1) * np.log(seen.n_samples) + seen.options.labels.sure) / seen.worth
    sentence = (
        f"A halfspace with fewer than about {np.ceil(least):.0f} labels that no other one explains is not seen, and "
        "beside another one it would turn that by more than its error."
    )
    return Check("found width", True, least, None, sentence)


CHECKS = (
    Row(_labels),
    Row(network.inputs),
    Row(network.units),
    Row(_prediction),
    Row(_signal),
    Row(_majority),
    Row(_generalisation),
    Row(_structure),
    Row(_shape),
    Row(_corners),
    Row(_strength),
    Row(_spare),
    Row(_precision),
    Row(_resolution),
)
