"""The side of one checkout in `against.py`: recover what is asked for, one request a line, until the input ends.

A request is {"samples": file, "answer": file, "call": arguments of recover, "cap": CPU seconds}. A run that takes more
ends this process, by the signal's own default, which no code in the library can hold up.
"""

import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

import neurecover as nr


def recovered(request: dict[str, Any]) -> dict[str, Any]:
    """Run one request and keep the layers that it found, with their standard errors, in its answer file."""
    with np.load(request["samples"]) as samples:
        X, Y = samples["X"], samples["Y"]
    told: dict[str, Any] = request["call"]
    call: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    signal.setitimer(signal.ITIMER_PROF, request["cap"])
    began = time.process_time()
    try:
        found = nr.recover(X, Y, **call)
    except Exception as error:  # a crash of one checkout is a result like any other
        return {"seconds": time.process_time() - began, "verdict": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    seconds, network, errors = time.process_time() - began, found.network, found.certificate.standard_errors
    layers = [(network.W, network.b), (network.A, network.c)] if isinstance(network, nr.Network) else network.layers
    arrays: dict[str, Any] = {f"{name}{i}": array for i, layer in enumerate(layers) for name, array in zip("Wb", layer)}
    if getattr(network, "C", None) is not None:
        arrays["C"] = network.C
    if errors is not None:
        of_layers = [errors[name] for name in errors if name != "C"]
        arrays |= {f"{'WB'[i % 2]}error{i // 2}": array for i, array in enumerate(of_layers)}
    np.savez(request["answer"], **arrays)
    return {"seconds": seconds, "verdict": found.certificate.verdict}


def warm_up() -> None:
    """Load every room that a run loads when it first needs it."""
    X = np.random.default_rng(0).standard_normal((300, 2))
    for widths in (1, (2, 1)):
        nr.recover(X, np.maximum(X[:, 0], 0.0), widths, random_state=0, time_budget=1.0)


def main() -> None:
    # Only replies go to the standard output that the requests' sender reads.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warm_up()
    replies.write(f"{nr.__file__}\n")
    replies.flush()
    for line in sys.stdin:
        replies.write(json.dumps(recovered(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
