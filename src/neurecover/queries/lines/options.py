"""The constants that decide how lines are searched, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LineOptions:
    """How kinks on a line are told from rounding, and when a search is given up."""

    safety: float = 8.0  # roundings: two answers, each wrong by up to four times its typical rounding
    arm: float = 1.0 / 64.0  # of an interval over which a slope is taken: short, to avoid kinks
    arm_coarse: float = 1.0 / 12.0  # the same when answers are coarse
    shortest: float = 1e4  # resolutions: shorter intervals have points that hardly differ
    levels: int = 80  # bisections: 2e4 halved so often is below the spacing of doubles
    passes: int = 4  # measurements of the pieces while kinks within rounding are dropped
    ratio: float = 6.0  # between first intervals when answers are coarse: far ones do not show near kinks
    patience: int = 6_000  # queries after which curves are told from kinks
    doubt: int = 150  # queries for a kink found, from which some are repeated: a kink takes about 12
    repeated: int = 64  # of these: answers of which 5 % change pass once in 27 times
    far: float = 1e4  # length of a line: a hyperplane at distance r crosses it beyond with a chance of about r / far
    far_coarse: float = 1e3  # the same when answers are coarse, and farther out too coarse
    most: int = 100_000  # queries on one line: enough for thousands of kinks
    per_arm: int = 2  # answers on either side of a kink on a short segment
    per_arm_coarse: int = 4  # the same when answers are coarse: two more show whether the arm is straight
    wide_arm: float = 0.6  # of the radius that an arm covers at least then, for the sake of its slope
    visible: float = 300.0  # roundings from which a jump of slope on a short segment counts
    visible_coarse: float = 40.0  # the same when answers are coarse, and a radius holds no more
    straight: float = 30.0  # roundings up to which a short segment is straight
    straight_coarse: float = 12.0  # the same when answers are coarse: their typical rounding is known better
    clean: float = 8.0  # roundings up to which an arm is straight
    same_place: float = 1e-4  # of the radius within which a second look has to find the same kink
    same_sigma: float = 6.0  # standard errors within which it has to
    same_jump: float = 0.2  # of the jump by which the second look may differ
    close_look: float = 0.02  # of the radius: the segment of the second look
    close_sigma: float = 60.0  # standard errors of the kink's place that this segment has at least
