"""Data on which recovery is provably hard [BJW18, §3 and Lemma 16].

**Separability.** A formula ψ in conjunctive normal form with six literals per clause becomes a set of samples. A
network y = relu(u·x) + relu(v·x), with one output and two units, fits them if and only if some assignment satisfies
both ψ and its reverse ψ̄ (every literal negated). With ±1 for true and false, coordinates 1 … m for the variables and
two more, the samples are

    ±eᵢ → 1                            u and v have opposite entries ±1: an assignment and its negation
    e, −2e → 1 for both extra ones     and their sum → 1: entries 1 and −½ in some order, adding up to ½
    −(literals) − 10 on both extra → 0   Σ literals ≥ −5, false only when all six are

The output weights may be free too: a further coordinate with samples ±e → 1 forces both to be positive. Since A has
rank 1 < 2 units, none of the methods that need rank(A) = k applies, which is the purpose of the instances.

**Near-parallel pair.** relu(x₁ + a x₂) + relu(x₁ − a x₂), halved, is relu(x₁) if |x₁| > a|x₂|. The networks for a
and 2a agree on all samples with |x₁| > 2a|x₂|, so 1/a = κ(W) samples are needed to distinguish them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from neurecover.models import Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate._checks import number, positive_integer

LITERALS = 6  # of a clause [BJW18, §3]
MAX_EXHAUSTIVE = 24  # variables: 2²⁴ assignments


@dataclass(frozen=True, eq=False)
class Formula:
    """Clauses (c, 6) of literals ±1 … ±n_variables, as in DIMACS, with the reverse of every clause, so that ψ = ψ̄."""

    n_variables: int
    clauses: np.ndarray

    def satisfied(self, assignment: np.ndarray) -> bool:
        """Return whether every clause has a true literal; assignment (n_variables,) of ±1."""
        literals = np.sign(self.clauses) * np.asarray(assignment)[np.abs(self.clauses) - 1]
        return bool(np.all(literals.max(axis=1) > 0))

    def solutions(self) -> np.ndarray:
        """Find every satisfying assignment (s, n_variables), by exhaustive search."""
        if self.n_variables > MAX_EXHAUSTIVE:
            raise ValueError(f"Exhaustive search goes to {MAX_EXHAUSTIVE} variables. Got {self.n_variables} instead.")
        numbers = np.arange(2**self.n_variables)
        bits = 1 - 2 * ((numbers[:, None] >> np.arange(self.n_variables)) & 1).astype(np.int8)
        alive = np.ones(len(bits), dtype=bool)
        for clause in self.clauses:
            alive &= (bits[:, np.abs(clause) - 1] * np.sign(clause) > 0).any(axis=1)
        return bits[alive].astype(int)


def planted_formula(
    n_variables: int, n_clauses: int, random_state: RandomStateLike = None
) -> tuple[Formula, np.ndarray]:
    """Draw a random reversible formula of 2·n_clauses clauses, with an assignment that satisfies it.

    A clause is kept if the assignment makes one literal true and another false, so that it also satisfies the reverse.
    """
    m = _enough_variables(n_variables)
    c = positive_integer("n_clauses", n_clauses)
    rng = as_generator(random_state, "simulate.hard.planted")
    assignment = rng.choice([-1, 1], m)
    clauses: list[np.ndarray] = []
    while len(clauses) < c:
        clause = _random_clause(rng, m)
        truth = np.sign(clause) * assignment[np.abs(clause) - 1]
        if truth.min() < 0 < truth.max():
            clauses.append(clause)
    return _reversible(m, np.array(clauses)), assignment


def unsatisfiable_formula(n_variables: int, n_clauses: int = 0, random_state: RandomStateLike = None) -> Formula:
    """Return a reversible formula that no assignment satisfies.

    It has all 64 sign patterns on six of the variables; every assignment makes all literals of one of these clauses
    false. n_clauses random clauses and their reverses are added.
    """
    m = _enough_variables(n_variables)
    rng = as_generator(random_state, "simulate.hard.unsatisfiable")
    variables = rng.permutation(m)[:LITERALS] + 1
    core = np.array([variables * signs for signs in product((1, -1), repeat=LITERALS) if signs[0] == 1])
    more = [_random_clause(rng, m) for _ in range(n_clauses)]
    return _reversible(m, rng.permutation(np.array([*core, *more])))


def separability_samples(formula: Formula) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, n_variables + 3) and Y (n, 1), which a network of two units can fit exactly iff ψ is satisfiable."""
    m = formula.n_variables
    d = m + 3
    clause_rows = np.zeros((len(formula.clauses), d))
    np.put_along_axis(clause_rows, np.abs(formula.clauses) - 1, -np.sign(formula.clauses).astype(float), axis=1)
    clause_rows[:, m : m + 2] = -10.0
    unit = np.eye(d)
    ones = np.vstack(
        [unit[:m], -unit[:m], unit[m : m + 2], -2.0 * unit[m : m + 2], unit[m] + unit[m + 1], unit[m + 2], -unit[m + 2]]
    )
    X = np.vstack([clause_rows, ones])
    Y = np.concatenate([np.zeros(len(clause_rows)), np.ones(len(ones))])
    return X, Y[:, None]


def encode(assignment: np.ndarray) -> Network:
    """Return the network of two units that encodes a satisfying assignment (±1 entries)."""
    xi = np.asarray(assignment, dtype=float)
    if xi.ndim != 1 or not np.all(np.abs(xi) == 1.0):
        raise ValueError(f"An assignment is a vector of ±1, true and false. Got {assignment!r} instead.")
    W = np.array([np.concatenate([xi, [1.0, -0.5, 1.0]]), np.concatenate([-xi, [-0.5, 1.0, -1.0]])])
    return Network(W, None, np.ones((1, 2)))


def decode(network: Network) -> np.ndarray:
    """Return the assignment that a network fitting the samples encodes: the signs of one unit, (n_variables,).

    The other unit's assignment is its negation, which satisfies a reversible formula as well.
    """
    if network.n_hidden != 2 or network.n_outputs != 1 or network.n_inputs < LITERALS + 3:
        raise ValueError(
            f"Separability instances have two units, one output and {LITERALS + 3} or more inputs. "
            f"Got {network!r} instead."
        )
    if not np.all(network.A > 0.0):
        raise ValueError(f"Both output weights of a solution are positive. Got {network.A.ravel()} instead.")
    weights = network.W[0] * network.A[0, 0]
    # The unit whose further coordinate is positive comes first, so that decode(encode(ξ)) = ξ.
    weights = weights if weights[-1] > 0.0 else network.W[1] * network.A[0, 1]
    return np.where(weights[: network.n_inputs - 3] > 0.0, 1, -1)


def near_parallel_pair(a: float) -> tuple[Network, Network]:
    """Return two networks of two inputs and two units that agree wherever |x₁| > 2a|x₂|; κ(W) of the first is 1/a.

    [BJW18, Lemma 16]; the printed V² has a in one place where the proof uses 2a.
    """
    a = number("a", a, "between 0 and ½, 0 excluded", lambda v: 0 < v <= 0.5)
    return _narrow(a), _narrow(2.0 * a)


def _narrow(a: float) -> Network:
    length = np.sqrt(1.0 + a * a)
    return Network(np.array([[1.0, a], [1.0, -a]]) / length, None, np.full((1, 2), length / 2.0))


def _enough_variables(n_variables: int) -> int:
    m = positive_integer("n_variables", n_variables)
    if m < LITERALS:
        raise ValueError(f"A clause has {LITERALS} different variables. Got n_variables={m} instead.")
    return m


def _random_clause(rng: np.random.Generator, m: int) -> np.ndarray:
    return (rng.permutation(m)[:LITERALS] + 1) * rng.choice([-1, 1], LITERALS)


def _reversible(m: int, clauses: np.ndarray) -> Formula:
    return Formula(m, np.vstack([clauses, -clauses]))
