"""What a recovery hands back: the network, the certificate and how it came about."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from neurecover.models import Network, from_arrays, read_npz, write_npz

VERDICTS = ("exact", "statistical", "approximate", "failed")


@dataclass(frozen=True)
class StandardErrors:
    """One standard error per parameter of the network in normal form: W (k, d), b (k,), A (p, k), c (p,)."""

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    c: np.ndarray


@dataclass(frozen=True)
class Certificate:
    """How far the weights can be trusted.

    verdict is "exact" (held-out residual at the level of rounding, weights determined by the samples), "statistical"
    (residual is noise, see `standard_errors`), "approximate" (predicts well, weights not determined) or "failed".
    reasons are plain sentences, each with its figure. noise_variance is None where the residual is not noise.
    """

    verdict: str
    reasons: tuple[str, ...]
    holdout_mse: float
    noise_variance: float | None
    identifiable: bool
    n_samples: int
    n_holdout: int
    standard_errors: StandardErrors | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Stage:
    """One step of a recovery: what was done, how long it took, what came out."""

    name: str
    seconds: float
    detail: str


@dataclass(frozen=True)
class Recovery:
    """The answer of `recover`."""

    network: Network
    certificate: Certificate
    method: str
    stages: tuple[Stage, ...]
    seconds: float

    def summary(self) -> str:
        """A few lines for a person."""
        net, certificate = self.network, self.certificate
        lines = [
            f"verdict      {certificate.verdict}",
            f"network      {_count(net.n_inputs, 'input')}, {_count(net.n_hidden, 'hidden unit')} ({net.activation}), "
            f"{_count(net.n_outputs, 'output')}",
            f"method       {self.method}, {self.seconds:.2f} s",
            f"held out     mean squared error {certificate.holdout_mse:.3g} on {certificate.n_holdout} of "
            f"{certificate.n_samples} samples",
        ]
        lines += [f"{'because' if i == 0 else '':<12} {reason}" for i, reason in enumerate(certificate.reasons)]
        lines += [
            f"{'stages' if i == 0 else '':<12} {stage.name}: {stage.detail} ({stage.seconds:.2f} s)"
            for i, stage in enumerate(self.stages)
        ]
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file from which `neurecover.load` reads the network and `Recovery.load` everything."""
        errors = self.certificate.standard_errors
        facts = {name: value for name, value in asdict(self.certificate).items() if name != "standard_errors"}
        record = {
            "method": self.method,
            "seconds": self.seconds,
            "stages": [asdict(stage) for stage in self.stages],
            "certificate": facts,
        }
        arrays = self.network.to_arrays() | {"recovery": np.array(json.dumps(record))}
        if errors is not None:
            arrays |= {f"error_{name}": value for name, value in vars(errors).items()}
        write_npz(path, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Recovery:
        """Read what `save` wrote."""
        arrays = read_npz(path)
        network = from_arrays(arrays, path)
        if "recovery" not in arrays:
            raise ValueError(f"{path} holds a network but no recovery. Read it with neurecover.load instead.")
        try:
            record = json.loads(str(arrays["recovery"]))
            facts = record["certificate"] | {"reasons": tuple(record["certificate"]["reasons"])}
            stages = tuple(Stage(**stage) for stage in record["stages"])
            errors = {name: arrays[f"error_{name}"] for name in "WbAc"} if "error_W" in arrays else None
            certificate = Certificate(**facts, standard_errors=None if errors is None else StandardErrors(**errors))
            return cls(network, certificate, record["method"], stages, record["seconds"])
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} holds a recovery that this release cannot read ({error}).") from None


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
