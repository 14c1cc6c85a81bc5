"""A first-order start for many units: minibatch Adam on y ≈ A·act(V x̃) + L x + c, in single precision.

From random units a second-order method solves for the readout and for all units at once, and in high dimension most of
them settle where they are of little use. Noisy small steps from a small readout move the units towards the teacher's
first. With g the gradient of a batch's mean squared error, every parameter θ follows [Kingma & Ba 2015]

    μ ← β₁ μ + (1 − β₁) g,    ν ← β₂ ν + (1 − β₂) g²,    θ ← θ − η_t (μ / (1 − β₁ᵗ)) / (√(ν / (1 − β₂ᵗ)) + ε),

with η_t falling like half a cosine from η₀ = RATE/√D to LAST of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.models import Student
from neurecover.refine.held import Held
from neurecover.solve import Deadline

BATCH, LAST = 512, 3e-3
RATE = 0.3  # η₀ as a fraction of the size 1/√D of a unit's weights: as large as it can be (measured)
STEPS_PER_UNIT = 80  # batches for each unit of the teacher, over √p: outputs tell units apart (measured)
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def steps_for(n_hidden: int, n_outputs: int) -> int:
    """How many batches are worth while."""
    return int(STEPS_PER_UNIT * n_hidden / np.sqrt(n_outputs))


def warm_up(held: Held, student: Student, n_steps: int, rng: np.random.Generator, deadline: Deadline) -> Student:
    """The student after `n_steps` batches, or fewer where the deadline comes first; its readout starts at random."""
    (m, D), (q, p), n = student.V.shape, student.readout.shape, len(held.inputs)
    Y = held.outputs
    center, spread = Y.mean(axis=0), float(Y.std()) or 1.0
    a = q - m
    theta = np.concatenate([student.V.ravel(), rng.standard_normal(m * p) / np.sqrt(m), np.zeros(a * p)])
    adam = _Adam(theta.astype(np.float32), RATE / np.sqrt(D), n_steps)
    V, readout = adam.theta[: m * D].reshape(m, D), adam.theta[m * D :].reshape(q, p)
    gradient = np.empty_like(adam.theta)
    to_V, to_readout = gradient[: m * D].reshape(m, D), gradient[m * D :].reshape(q, p)
    size = min(BATCH, n)
    order = np.arange(n)
    for step in range(n_steps):
        if deadline.passed:
            break
        deadline.pulse(float("nan"))
        first = size * (step % (n // size))
        if first == 0:
            order = rng.permutation(n)
        rows = order[first : first + size]
        X = held.inputs[rows]
        Z = X @ V.T
        h = np.hstack([student.activation(Z), X[:, D - a :]])
        error = h @ readout - ((Y[rows] - center) / spread).astype(np.float32)
        error *= np.float32(2.0 / error.size)
        np.matmul(h.T, error, out=to_readout)
        np.matmul((student.activation.derivative(Z) * (error @ readout[:m].T)).T, X, out=to_V)
        adam.update(gradient)
    return replace(student, V=V.astype(np.float64), readout=np.zeros_like(student.readout))


class _Adam:
    """All parameters in one vector `theta`, moved in place."""

    def __init__(self, theta: np.ndarray, rate: float, n_steps: int) -> None:
        self.theta, self.rate, self.n_steps, self.t = theta, rate, n_steps, 0
        self.mean, self.square, self._work = np.zeros_like(theta), np.zeros_like(theta), np.empty_like(theta)

    def update(self, gradient: np.ndarray) -> None:
        self.t += 1
        work = self._work
        self.mean *= np.float32(BETA_1)
        self.mean += np.multiply(gradient, np.float32(1.0 - BETA_1), out=work)
        self.square *= np.float32(BETA_2)
        np.multiply(gradient, gradient, out=work)
        work *= np.float32(1.0 - BETA_2)
        self.square += work
        np.sqrt(self.square, out=work)
        work += np.float32(EPSILON)
        np.divide(self.mean, work, out=work)
        work *= np.float32(self._rate())
        self.theta -= work

    def _rate(self) -> float:
        fall = LAST + (1.0 - LAST) * 0.5 * (1.0 + np.cos(np.pi * self.t / self.n_steps))
        return float(self.rate * fall * np.sqrt(1.0 - BETA_2**self.t) / (1.0 - BETA_1**self.t))
