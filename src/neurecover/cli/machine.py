"""Output for programs: one JSON object on standard output, with null for every number that is not finite."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import neurecover as nr

if TYPE_CHECKING:
    from neurecover.models import Model


def answer(facts: Mapping[str, Any]) -> None:
    """Write the object, on one line."""
    sys.stdout.write(as_json(facts) + "\n")


@contextmanager
def libraries_to_stderr() -> Iterator[None]:
    """Redirect the output of libraries such as HiGHS to standard error, so that standard output has only the answer.

    C's own buffer is flushed before standard output is restored; otherwise it would be printed there at the end.
    """
    try:
        sys.stdout.flush()
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def as_json(facts: Mapping[str, Any]) -> str:
    return json.dumps(plain(facts), ensure_ascii=False, allow_nan=False)


def recovery_facts(recovery: nr.Recovery[Model], out: Path | None) -> dict[str, Any]:
    """Return the contents of a `Recovery`, except the excerpt of its samples."""
    from neurecover.certificate import advice

    certificate = recovery.certificate
    return {
        "verdict": certificate.verdict,
        "try": advice(certificate),
        "reasons": certificate.reasons,
        "network": network_facts(recovery.network),
        "standard_errors": certificate.standard_errors,
        "determined": certificate.determined,
        "holdout_mse": certificate.holdout_mse,
        "noise_variance": certificate.noise_variance,
        "noise_variances": certificate.noise_variances,
        "n_samples": certificate.n_samples,
        "n_holdout": certificate.n_holdout,
        "n_queries": recovery.n_queries,
        "method": recovery.method,
        "seconds": recovery.seconds,
        "checks": certificate.checks,
        "stages": recovery.stages,
        "versions": recovery.versions,
        "file": out,
    }


def network_facts(network: Model | None) -> dict[str, Any] | None:
    """Return the arrays of a network by the names in its file, its kind and its sizes."""
    if network is None:
        return None
    sizes = {name: getattr(network, name) for name in ("n_inputs", "n_hidden", "n_outputs", "n_parameters")}
    arrays = {} if isinstance(network, nr.Composite) and not network.can_be_saved else network.to_arrays()
    return sizes | arrays


def plain(value: Any) -> Any:
    """Convert to numbers, texts, lists and dicts that JSON can write; floats can be read back to the last bit."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
