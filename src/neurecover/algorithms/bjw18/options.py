"""The constants that decide about exact weights, patterns, guesses and corrupted outputs, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EXACT = 1e-11  # of the outputs: rounding of a few thousand terms with four digits to spare, so neither noise nor a unit
SOLVED = 1e-9  # of the right side, left by a linear system that has a solution: EXACT at a condition of 100


@dataclass(frozen=True)
class ExactOptions:
    """How many samples the exact methods take, and when rows count as orthonormal."""

    rows: int = 20_000  # of the exact step: enough for units at angles of 0.1, and quick for 50 of them
    most_rows: int = 200_000  # looked through for samples with a single unit on; units at 0.01 rad have one in 600
    chance: float = 1e-3  # with which orthonormal rows are called otherwise


@dataclass(frozen=True)
class EnumerationOptions:
    """How much is enumerated by `sign_patterns`."""

    seconds: float = 600.0  # of enumeration, beyond which the method refuses
    seconds_per_ray: float = 2e-5  # and per hundred samples, measured
    faces: int = 20_000  # patterns that are kept, 2 MB for 100 samples
    checked: int = 200  # patterns looked at for other networks that fit
    systems: int = 20_000  # of Lemma 1 in the printed form; each pattern then takes up to 2n programs
    delta: float = 0.05  # the probability of failure in the check of Corollary 1


@dataclass(frozen=True)
class PieceOptions:
    """When outputs are parallel, and how the linear pieces of a line are told apart."""

    most_rows: int = 200_000  # looked through for samples with a single unit on
    shortest: float = 1e-4  # of the largest output: a shorter one has lost four digits of its direction
    parallel: float = 1e-10  # distance of two unit vectors of one direction: ten times rounding over `shortest`
    trials: int = 500  # systems of d samples: with half of the samples on a piece, all miss it once in 2,600 at d = 6
    voters: int = 2_000  # samples that choose among them


@dataclass(frozen=True)
class CorruptionOptions:
    """Which outputs are errors, and how many may be."""

    rows: int = 10_000  # of the pursuit, which holds about eight arrays of that many samples
    most_of_row: float = 0.5  # share of corrupted entries beyond which a row has no majority to go by
    gross: float = 1e-6  # of the outputs' size: an output further from the network than this is corrupted
    most_aside: float = 0.25  # share of one output's samples beyond which the rest is no evidence
    fewest: int = 5  # held-out values of an output that are not corrupted, below which nothing is left to judge by
    many: int = 5  # set-aside outputs per weight of a unit, from which the means have the power to show one
    place_rows: int = 100_000  # on which it is seen where corrupted outputs are


@dataclass(frozen=True)
class GuessOptions:
    """How many guesses are made, and how they are chosen from and refined."""

    rows: int = 20_000  # samples; the candidates' values on all of them are held at once
    guesses: int = 180  # points on the circle; 400 on the sphere of R³, then 1,500: 30 to 5 degrees apart
    most: int = 1_500  # points beyond k = 3: with two smoothings, 0.5 GB of values on all rows
    smoothing: tuple[float, ...] = (1.0, np.inf)  # standard deviation of g over the root mean square of u·y
    first: int = 20  # first members of the greedy choice
    refinements: int = 8  # each on caps 0.6 times as wide as before, so that the last are within a degree
    cap_points: int = 16
    choices: float = 1e8  # C(N, k) that the printed form compares at the most, about a minute

    def points(self, k: int) -> int:
        """Return the number of points on the sphere of R^k."""
        return {1: 2, 2: self.guesses, 3: min(400, self.most)}.get(k, self.most)


CORRUPTION = CorruptionOptions()
GUESSES = GuessOptions()
