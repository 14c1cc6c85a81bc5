"""What is sought: a network of the family y = A h_L + C x + c on n samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neurecover.activations import Activation
from neurecover.fit.options import EXACT


@dataclass(frozen=True)
class Task:
    """The function of the hidden units, the shapes, and what is known of the rest.

    n_hidden is the number of units of one hidden layer, None where it is to be found; `layers` are those of several.
    `level` is Σr²/Σy² at which a fit has reached the rounding of the outputs: there is no better one to be found.
    """

    activation: Activation
    n_inputs: int
    n_outputs: int
    n_samples: int
    bias: bool
    n_hidden: int | None
    level: float = EXACT
    depth: int = 1
    affine: bool = False
    layers: tuple[int, ...] | None = None

    @property
    def widths(self) -> tuple[int, ...] | None:
        """The units of every hidden layer, None where they are to be found."""
        return self.layers if self.n_hidden is None else (self.n_hidden,)

    @property
    def asked(self) -> int | tuple[int, ...] | None:
        """What the caller gave: a number for one layer, a tuple for several, None where it is to be found."""
        return self.layers if self.n_hidden is None else self.n_hidden

    @property
    def coarse(self) -> bool:
        """Whether the outputs carry fewer digits than double precision, and the level is theirs."""
        return self.level > EXACT

    @property
    def can_be_affine(self) -> bool:
        """Whether a free affine part hides nothing but signs: act(z) − act(−z) = m z with m ≠ 0."""
        return bool(self.activation.odd_slope)

    @property
    def rectified(self) -> bool:
        """Whether there is one layer whose units have a bend and nothing else, and biases to place it."""
        act = self.activation
        return self.depth == 1 and not self.affine and self.bias and act.homogeneity == 1.0 and act.odd_slope == 1.0

    def n_parameters(self, widths: tuple[int, ...]) -> int:
        """Return the number of weights of a network of these widths."""
        size, below = 0, self.n_inputs
        for k in widths:
            size, below = size + k * (below + self.bias), k
        return size + self.n_outputs * (below + self.bias + self.n_inputs * self.affine)

    def on(self, n_samples: int) -> Task:
        """Return the same on another number of samples."""
        return replace(self, n_samples=n_samples)
