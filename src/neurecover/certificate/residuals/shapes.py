"""Shapes that the residual could have and that no unit of the network explains: slopes, steps, bends and powers.

Along the rows of the first layer and along every input, t = (v·x − mean)/deviation:

    1[t > q]  and  max(t − q, 0)  at quartiles q of the normal distribution,    t,  t²,  t³,

and f², f³ of the network's own outputs [Ramsey 1969]. Each is tested separately (`ShapeScores`): the largest of Q
single tests at level α/Q detects smaller jumps than a joint test with Q degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.certificate.information.matrix import Information
from neurecover.data import Source, Whitening, reduce
from neurecover.models import Model
from neurecover.statistics import ShapeCross, ShapeScores

QUARTILES = (-0.6745, 0.0, 0.6745)  # of the normal distribution
PER_DIRECTION = 2 * len(QUARTILES) + 3  # steps and bends at the quartiles, and three powers


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes as a function of whitened inputs: `directions` (m, r), and the outputs of `model`."""

    model: Model
    directions: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, model: Model, whitening: Whitening, columns: tuple[str, ...], most: int, rng: np.random.Generator
    ) -> Shapes:
        """Return the shapes along rows and inputs, at most `most` directions chosen at random."""
        rows, inputs = model.hidden_weights[0], np.linalg.pinv(whitening.matrix).T
        V = np.vstack([rows, inputs])
        names = [f"unit {j}" for j in range(len(rows))] + [f"input {name}" for name in columns]
        size = np.linalg.norm(V, axis=1)
        live = rng.permutation(np.flatnonzero(size > 1e-12 * size.max()))[:most]
        return cls(model, V[live] / size[live, None], tuple(names[i] for i in live))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        T, f = X @ self.directions.T, self.model(X)  # whitened: of mean zero and deviation one
        parts = [part for q in QUARTILES for part in ((q < T).astype(np.float64), np.maximum(T - q, 0.0))]
        return np.hstack([*parts, T, T**2, T**3, f**2, f**3])

    def described(self, shape: int) -> str:
        m = len(self.names)
        if shape >= PER_DIRECTION * m:
            return "a power of the network's own output"
        kinds = [kind for _ in QUARTILES for kind in ("a step", "a bend")] + ["a slope", "the square", "the cube"]
        return f"{kinds[shape // m]} along {self.names[shape % m]}"


def shape_test(
    information: Information, whitening: Whitening, samples: Source, rng: np.random.Generator, work: float
) -> tuple[float, str] | None:
    """Return the p-value of the most significant shape if the residual is noise, and that shape in words.

    Return None if not even one direction is within the work.
    """
    model, free = information.model, information.free
    cost = 4.0 * samples.count() * model.n_outputs * len(free)  # cost per shape
    shapes = Shapes.of(model, whitening, samples.base.input_names, int(work / (PER_DIRECTION * cost)), rng)
    if not shapes.names:
        return None
    n_shapes = PER_DIRECTION * len(shapes.names) + 2 * model.n_outputs
    cross = reduce(samples, ShapeCross(model, free, shapes, n_shapes)).sums["cross"]
    explained = information.root @ (information.root.T @ cross)
    p_value, which = reduce(samples, ShapeScores(model, free, shapes, explained)).worst()
    held = which >= model.n_outputs * n_shapes
    return p_value, "a bias that was held at zero" if held else shapes.described(which % n_shapes)
