"""Named larger models, against which a network is tested: a linear term, curvature, another activation.

Each adds columns e to the readout. The sums of the information matrix include these columns (`Lacks`):

    a linear term          x,
    curvature              x_i x_j,
    another activation     Σ_j A_j z_j (a leak),   Σ_j A_j s‖w_j‖ log(1 + exp(−|z_j|/(s‖w_j‖))) (kinks rounded over s),

with z_j of the last hidden layer and whitened inputs. `nested` has the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from neurecover.certificate.options import NestedOptions
from neurecover.models import Model, Network

LINEAR, CURVED, ACTIVATION = "linear term", "curvature", "another activation"


@dataclass(frozen=True, eq=False)
class Alternatives:
    """The columns of all alternatives as a function of whitened inputs, `count` of them, and which combinations to
    test.

    `groups()` gives, for every alternative, the matrix T (p·count, q) that picks its columns, output by output.
    """

    model: Network
    pairs: tuple[np.ndarray, np.ndarray]
    widths: tuple[float, ...]
    linear: bool
    options: NestedOptions = field(default_factory=NestedOptions)

    @classmethod
    def of(cls, white: Model, options: NestedOptions) -> Alternatives | None:
        """Return the alternatives with at most `options.columns` columns; None if there are none."""
        if not isinstance(white, Network) or not white.n_inputs:
            return None
        d, room = white.n_inputs, options.columns // white.n_outputs
        pairs = np.triu_indices(d) if d <= options.pairs else (np.arange(min(d, options.squares)),) * 2
        linear = white.C is None and d <= room
        room -= d * linear
        pairs = pairs if len(pairs[0]) <= room else (np.arange(0),) * 2
        room -= len(pairs[0])
        widths = options.rounding if 0 < len(options.rounding) * white.n_hidden <= room else ()
        found = cls(white, pairs, widths, linear, options)
        return found if len(found) else None

    def __len__(self) -> int:
        return self.model.n_inputs * self.linear + len(self.pairs[0]) + len(self.widths) * self.model.n_hidden

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the columns (n, count)."""
        i, j = self.pairs
        columns = [X] if self.linear else []
        columns.append(X[:, i] * X[:, j])
        size = self._sizes
        if self.widths:
            Z = np.abs(X @ self.model.W.T + self.model.b)
            columns += [s * size * np.log1p(np.exp(-Z / (s * size))) for s in self.widths]
        return np.hstack(columns)

    @property
    def _sizes(self) -> np.ndarray:
        """‖w_j‖, the standard deviation of z_j for whitened inputs; (k,)."""
        return np.maximum(np.linalg.norm(self.model.W, axis=1), 1e-300)

    def groups(self) -> dict[str, np.ndarray]:
        """Return, by name, the T (p·count, q) of every alternative's columns e T, ordered output by output."""
        p, count, d, A = self.model.n_outputs, len(self), self.model.n_inputs * self.linear, self.model.A
        own = np.eye(p * count).reshape(p, count, p * count)
        m, k = len(self.pairs[0]), self.model.n_hidden
        found = {}
        if self.linear:
            found[LINEAR] = own[:, :d].reshape(-1, p * count).T
        if m:
            found[CURVED] = own[:, d : d + m].reshape(-1, p * count).T
        shapes = []
        if self.linear and k:
            shapes.append(np.einsum("oj,jd,odc->c", A, self.model.W, own[:, :d]))
        starts = [d + m + k * i for i in range(len(self.widths))]
        shapes += [np.einsum("oj,ojc->c", A, own[:, first : first + k]) for first in starts]
        if shapes:
            found[ACTIVATION] = np.column_stack(shapes)
        return found
