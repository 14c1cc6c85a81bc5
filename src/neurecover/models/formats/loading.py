"""Load a network of any of the three kinds from its file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from neurecover.activations import Activation
from neurecover.models.composite import Composite
from neurecover.models.deep import DeepNetwork
from neurecover.models.formats.files import check_header, read_npz
from neurecover.models.layered import Layered
from neurecover.models.network import Network

Model = Network | DeepNetwork | Composite
KINDS: dict[str, type[Network] | type[DeepNetwork] | type[Composite]] = {
    "network": Network,
    "deep": DeepNetwork,
    "composite": Composite,
}


def check_network(value: object, caller: str) -> None:
    """Raise ValueError for what is not a network, such as a recovery, which holds one."""
    if not isinstance(value, Network | DeepNetwork | Composite | Layered):
        hint = "; give its network" if hasattr(value, "network") else ""
        raise ValueError(f"{caller} needs a network. Got a {type(value).__name__} instead{hint}.")


def load(path: str | Path, activation: Activation | None = None) -> Model:
    """Read a network from a file.

    Parameters
    ----------
    path : str or Path
        A file written by the `save` of a network or of a recovery, or an `.onnx` file. Nothing is unpickled.
    activation : Activation or None, default=None
        The function of the hidden units. Needed only if it was made by `Activation.from_function`, because the file
        holds no more than its name.

    Returns
    -------
    Network, DeepNetwork or Composite
        The network.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import neurecover as nr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nr.Network([[1.0]], None, [[2.0]]).save(Path(folder) / "net.npz")
    ...     nr.load(Path(folder) / "net.npz")([[3.0]])
    array([[6.]])
    """
    if Path(path).suffix.lower() == ".onnx":
        return Network.from_onnx(path)
    return from_arrays(read_npz(path), path, activation)


def from_arrays(arrays: dict[str, np.ndarray], path: str | Path, activation: Activation | None = None) -> Model:
    """Build the network from the arrays of a file; `path` is for error messages."""
    check_header(arrays, path)
    kind = str(arrays.get("kind", "network"))
    if kind not in KINDS:
        raise ValueError(f"{path} holds a network of a kind that this release does not know, {kind!r}.")
    try:
        return KINDS[kind].from_arrays(arrays, activation)
    except KeyError as missing:
        raise ValueError(
            f"{path} is not a saved network: it lacks {missing.args[0]}. It holds {', '.join(sorted(arrays))}."
        ) from None
    except (TypeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} holds a network that this release cannot read ({error}).") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
