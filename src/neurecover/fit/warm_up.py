"""A first-order start for many units: minibatch Adam on y ≈ Θᵀ c_L, in single precision.

From random units a second-order method solves for the readout and for all units at once, and in high dimension most of
them settle where they are of little use. Noisy small steps from a small readout move the units towards the teacher's
first. With g the gradient of a batch's mean squared error, every parameter θ follows [Kingma & Ba 2015]

    μ ← β₁ μ + (1 − β₁) g,    ν ← β₂ ν + (1 − β₂) g²,    θ ← θ − η_t (μ / (1 − β₁ᵗ)) / (√(ν / (1 − β₂ᵗ)) + ε),

with η_t falling like half a cosine from η₀ = `rate`/√D to `last` of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.fit.samples import Samples
from neurecover.models.student import Student
from neurecover.solve import Deadline


@dataclass(frozen=True)
class WarmUp:
    """How many batches of which size, and how large steps are."""

    batch: int = 512  # rows: larger ones take longer for the same gain (measured at d = k = 100)
    rate: float = 0.3  # η₀ as a fraction of the size 1/√D of a unit's weights: as large as it can be (measured)
    last: float = 3e-3  # of η₀, at the end
    steps_per_unit: float = 53.0  # batches for each unit of the student, over √p: outputs tell units apart (measured)
    beta_1: float = 0.9  # as published, like the next two
    beta_2: float = 0.999
    epsilon: float = 1e-8


def warm_up(
    samples: Samples, student: Student, rng: np.random.Generator, deadline: Deadline, how: WarmUp | None = None
) -> Student:
    """Return the student after some batches, its readout zero again; it starts at random and small."""
    how = how or WarmUp()
    n, p, top = len(samples.F), student.n_outputs, student.widths[-1]
    n_steps = int(how.steps_per_unit * sum(student.widths) / np.sqrt(p))
    mean = samples.Y.mean(axis=0) if samples.bias else 0.0
    Y = ((samples.Y - mean) / (float(np.std(samples.Y)) or 1.0)).astype(np.float32)
    theta = np.zeros_like(student.theta)
    theta[len(theta) - top :] = rng.standard_normal((top, p)) / np.sqrt(top)
    shapes = [*(V.shape for V in student.V), theta.shape]
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    flat = np.concatenate([*(V.ravel() for V in student.V), theta.ravel()]).astype(np.float32)
    views = [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes)]
    moving = replace(student, V=tuple(views[:-1]), theta=views[-1])
    base, hidden = moving.reads(moving.depth)
    mean_of, square = np.zeros_like(flat), np.zeros_like(flat)
    batch, order = min(how.batch, n), np.arange(n)
    first_rate = how.rate / np.sqrt(student.n_base)
    for step in range(n_steps):
        if deadline.passed:
            break
        deadline.pulse(float("nan"))
        first = batch * (step % (n // batch))
        if first == 0:
            order = rng.permutation(n)
        rows = order[first : first + batch]
        values = moving.forward(samples.single[rows])
        error = moving.outputs(values) - Y[rows]
        error *= np.float32(2.0 / error.size)
        readout = np.vstack([values.F[:, :base].T @ error, values.H[:, hidden].T @ error])
        gradient = np.concatenate([moving.gradient(values, error), readout.ravel()])
        mean_of += np.float32(1.0 - how.beta_1) * (gradient - mean_of)
        gradient *= gradient
        square += np.float32(1.0 - how.beta_2) * (gradient - square)
        t = step + 1
        rate = first_rate * (how.last + (1.0 - how.last) * 0.5 * (1.0 + np.cos(np.pi * t / n_steps)))
        rate *= np.sqrt(1.0 - how.beta_2**t) / (1.0 - how.beta_1**t)
        flat -= np.float32(rate) * mean_of / (np.sqrt(square) + np.float32(how.epsilon))
    V = tuple(view.astype(np.float64) for view in views[:-1])
    return replace(student, V=V, theta=np.zeros_like(student.theta))
