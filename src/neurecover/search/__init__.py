"""From nothing to a fit worth having: what is sought, and the constants that decide how, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from neurecover.activations import Activation
from neurecover.fit import EXACT, FitOptions


@dataclass(frozen=True)
class Task:
    """What is sought: the function of the hidden units, the sizes, and what is known of the network.

    n_hidden is the number of units of one hidden layer, None if it is to be found; `layers` are those of several.
    `level` is the Σr²/Σy² at which a fit has reached the rounding of the outputs, so that no better fit exists.
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
        """The number of units of every hidden layer; None if they are to be found."""
        return self.layers if self.n_hidden is None else (self.n_hidden,)

    @property
    def asked(self) -> int | tuple[int, ...] | None:
        """The number of units that the caller gave: one number, or a tuple for several layers; None if they are to be
        found.
        """
        return self.layers if self.n_hidden is None else self.n_hidden

    @property
    def rectified(self) -> bool:
        """Whether there is one hidden layer, with biases, of units that are linear except at one kink."""
        act = self.activation
        return self.depth == 1 and not self.affine and self.bias and act.homogeneity == 1.0 and act.odd_slope == 1.0

    def n_parameters(self, widths: tuple[int, ...]) -> int:
        """Return the number of weights of a network of these widths."""
        size, below = 0, self.n_inputs
        for k in widths:
            size, below = size + k * (below + self.bias), k
        return size + self.n_outputs * (below + self.bias + self.n_inputs * self.affine)

    def on(self, n_samples: int) -> Task:
        """Return the same task on another number of samples."""
        return replace(self, n_samples=n_samples)


@dataclass(frozen=True)
class WidthOptions:
    """How wide students are if the widths are unknown, and when a unit counts as unnecessary."""

    first: int = 6  # units per layer to begin with; then twice as many, and so on
    fits: int = 3  # wide fits without progress before the next size, for one layer
    hops: int = 4  # the same for several, whose first fits show no planes
    split: float = 16.0  # ratio of two neighbouring costs that divides planes from spare units: jumps enter squared
    left_over: float = 1e-4  # Σr²/Σy² beyond which planes do not end the search: noise, or too few units (measured)
    runs: int = 8  # candidates at widths that may still be too wide, where no two fits to noisy samples agree
    narrow_steps: int = 6  # of descent after each unit that goes
    path_steps: int = 30  # the same where several layers are slimmed unit by unit, and each Σr² counts
    fit_steps: int = 100  # at the widths that are left
    slow: float = 0.98  # fall of Σr² over a window of such a descent at which it ends
    fallen: float = 4.0  # Σr² over the best at which slimming several layers is given up,
    lost: float = 1e-2  # beside this much of Σy², by which an exact fit may grow
    more: int = 4  # fresh units tried in every layer beside those of the best network
    rows: int = 20_000  # that the search for several widths looks at
    free: float = 1e-18  # of the dearest unit: what costs less costs nothing,
    nothing: float = 1e-12  # and all of those together no more than this, or than the fit has left over


@dataclass(frozen=True)
class SignOptions:
    """Which choices of signs are tried, and when one counts as right."""

    misfit: float = 1e-6  # relative, of the equations of signs of an exact fit
    likely: int = 24  # choices tried on noisy samples
    likely_deep: int = 4  # the same in every layer where there are several
    unlikely: float = 3.0  # times the least misfit of signs, beyond which others are not tried
    fitted: int = 3  # of them, how many are fitted to the end
    steps: int = 10  # after which hopeless choices are given up
    hopeless: float = 2.0  # times the least Σr² among them at which they are
    near: float = 1.1  # the same once one is as good as the student with skips
    doubt: float = 10.0  # degrees of freedom: odds of e⁵ between two choices under Gaussian noise
    settled: float = 0.01  # of a degree of freedom's share of Σr², gained in a window: less tells no optima apart
    turned: float = 0.5  # of a unit's size, that another is away at the least: a reversed one is twice its size away
    # Σr²/σ² that giving up an affine part may cost: so many times its degrees of freedom, or the quantile of χ².
    growth: float = 4.0
    chance: float = 1e-6


@dataclass(frozen=True)
class SearchOptions:
    """How wide students are, how many are fitted, and when one is good enough."""

    wider: float = 1.5  # student units per unit sought, and one more: 2 of 4 solved at 1.0 for two layers, 4 at 1.5
    wider_outputs: float = 1.15  # the same where one layer has as many outputs as units, which tell units apart
    widenings: int = 11  # widths between that and the teacher's that are tried, the widest first, where
    load: float = 0.5  # parameters of the student per equation, at the most: beyond, fits say nothing of the teacher
    equations: float = 8.0  # per parameter of the wide student that the search looks at; the last fit sees all
    equations_deep: float = 5.0  # the same for several layers: 10-10-10-1, he, 4 of 4 as with 8, in 0.36 of the time
    patience: int = 8  # hops without progress before a fresh start
    progress: float = 0.97  # Σr² of a hop, as a share of the best before it, that is progress
    nearly: float = 1e-7  # Σr²/Σy² at which a large student has all units of a noiseless teacher (measured)
    warm: int = 8_000  # hidden weights beyond which second-order descents from random units are stuck (measured)
    wide_steps: int = 60  # of a wide student of several layers: planes are right long before the residual is small
    clear: float = 2.5  # ratio of jumps between a plane that is kept and one that is not
    good: float = 1e-6  # Σr²/Σy² at which planes are taken whatever their jumps
    upper_tries: int = 6  # candidates for the layers above given planes
    agree: float = 1e-2  # of Σr²: two fits of one start that are closer are taken for the same
    completed: tuple[int, ...] = (3, 6, 12, 25, 50, 100, 200, 400)  # fits of one layer after which the best is narrowed
    max_fits: int = 400  # wide fits of a search without a time budget
    max_candidates: int = 24  # students taken to the end
    unsettled: int = 4  # exact fits whose signs stay open before one is returned as it is
    enough: float = 1e-26  # Σr²/Σy² at which a wide fit ends: nothing is left but the rounding of sums over units
    first_steps: int = 3  # of descent after each unit of the first layer that goes,
    lower_steps: int = 6  # once it has its width,
    upper_steps: int = 4  # after each unit above it,
    joint_steps: int = 100  # and of all layers together,
    joint_slow: float = 0.96  # as long as Σr² falls by as much in a window
    spare: float = 2.0  # shares of noise that each parameter of a spare unit may have taken up
    same: float = 0.1  # of a degree of freedom's share: Σr² of one optimum,
    alike: float = 1.0  # and of what may be one by its outputs,
    outputs: float = 0.01  # which are this close then, of P σ²
    dent: float = 50.0  # shares between dents of one optimum on a part of the samples, at the most (30 measured)
    noise: float = 1.5  # times the wide student's Σr² per degree of freedom beyond which what is left is no noise
    fit: FitOptions = field(default_factory=FitOptions)
    widths: WidthOptions = field(default_factory=WidthOptions)
    signs: SignOptions = field(default_factory=SignOptions)
