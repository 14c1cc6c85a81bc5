"""Students and samples of every shape, for the tests of fit/ and search/."""

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import get
from neurecover.fit import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, Network, network_of
from neurecover.models.student import Student

D = 4


@dataclass(frozen=True)
class Shape:
    """A kind of student: its function, widths and outputs, and what it reads."""

    activation: str
    widths: tuple[int, ...]
    p: int = 1
    bias: int = 1
    skips: bool = True
    affine: bool = False

    def __str__(self) -> str:
        kind = "skips" if self.skips else "affine" if self.affine else "plain"
        hidden = "-".join(map(str, self.widths))
        return f"{self.activation}-{hidden}-{self.p}-{kind}{'' if self.bias else '-nobias'}"

    def student(self, seed: int = 0, d: int = D) -> Student:
        """Return one at random, units that saturate with weights so large that they do."""
        rng, size = np.random.default_rng(seed), 2.0 if self.activation == "tanh" else 1.0
        V: list[np.ndarray] = []
        n_base = d + self.bias
        for layer, m in enumerate(self.widths):
            below = n_base + sum(self.widths[:layer]) if self.skips else self.bias + self.widths[layer - 1]
            columns = n_base if layer == 0 else below
            V.append(size * rng.standard_normal((m, columns)) / np.sqrt(columns))
        base = n_base if self.skips or self.affine else self.bias
        read = sum(self.widths) if self.skips else self.widths[-1]
        theta = rng.standard_normal((base + read, self.p))
        return Student(get(self.activation), tuple(V), theta, n_base, self.bias, self.skips, self.affine)


def features(X: np.ndarray, bias: int = 1) -> np.ndarray:
    """c₀: the inputs with a constant before them, if there is a bias."""
    return np.hstack([np.ones((len(X), int(bias))), X])


def samples_of(student: Student, n: int = 400, noise: float = 0.0, weighted: bool = False, seed: int = 1) -> Samples:
    """Return Gaussian inputs and a student's answers to them, away from its kinks."""
    rng = np.random.default_rng(seed)
    F = features(rng.standard_normal((3 * n, student.n_base - student.bias)), student.bias)
    F = F[np.min(np.abs(preactivations(student, F)), axis=1) > 1e-4][:n]
    Y = student(F)
    Y = Y + noise * rng.standard_normal(Y.shape)
    root = np.sqrt(rng.uniform(0.3, 3.0, (len(F), 1))) if weighted else None
    return Samples(F, Y, student.bias, root)


def preactivations(student: Student, F: np.ndarray) -> np.ndarray:
    """z of every unit, all layers side by side."""
    H, columns = np.zeros((len(F), 0)), []
    for layer, V in enumerate(student.V):
        base, below = student.reads(layer)
        columns.append(np.hstack([F[:, :base], H[:, below]]) @ V.T)
        H = np.hstack([H, student.activation(columns[-1])])
    return np.hstack(columns)


def readout_columns(student: Student, F: np.ndarray) -> np.ndarray:
    """B, the columns that the readout reads."""
    base, hidden = student.reads(student.depth)
    return np.hstack([F[:, :base], student.activation(preactivations(student, F))[:, hidden]])


def flat(student: Student) -> np.ndarray:
    """All hidden weights."""
    return np.concatenate([V.ravel() for V in student.V])


def at(samples: Samples, student: Student, **options: float) -> Point:
    """Return the student on the samples with its best readout."""
    return Point(samples, student, FitOptions(**options))  # type: ignore[arg-type]


def jacobian(samples: Samples, student: Student, step: float = 1e-6) -> np.ndarray:
    """√w ∂y/∂V by central differences, (n, p, size)."""
    theta, columns = flat(student), []
    for direction in np.eye(student.size):
        ends = [replace(student, V=tuple(student.split(theta + sign * step * direction))) for sign in (1.0, -1.0)]
        columns.append(samples.weigh(ends[0](samples.F) - ends[1](samples.F)) / (2.0 * step))
    return np.stack(columns, axis=-1)


def network(
    sizes: tuple[int, ...], seed: int = 0, activation: str = "relu", bias: bool = True, affine: bool = False
) -> Network | DeepNetwork:
    """Return a network whose units are on for about half of Gaussian inputs; rows have unit norm, or 2 for tanh."""
    rng, size = np.random.default_rng(seed), 2.0 if activation == "tanh" else 1.0
    act, layers = get(activation), []
    H = rng.standard_normal((2_000, sizes[0]))
    for k in sizes[1:-1]:
        W = rng.standard_normal((k, H.shape[1]))
        W *= size / np.linalg.norm(W, axis=1, keepdims=True)
        Z = H @ W.T
        b = bias * (0.5 * Z.std(axis=0) * rng.standard_normal(k) - Z.mean(axis=0))
        layers.append((W, b))
        H = act(Z + b)
    layers.append((rng.standard_normal((sizes[-1], H.shape[1])), bias * rng.standard_normal(sizes[-1])))
    C = rng.standard_normal((sizes[-1], sizes[0])) if affine else None
    return network_of(layers, act, C)
