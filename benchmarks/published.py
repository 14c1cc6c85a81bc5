"""Networks that others published and attacked: our run beside the figures that their papers print.

`NEURECOVER_MODELS` names a folder with the files: `.npz` with W0, b0, W1, b1, … (W is units × inputs), Keras `.h5` and
`.keras`, or ONNX; ReLU between layers and none after the last. The files themselves are not part of this repository.
Without the folder, networks of the same shape stand in: scikit-learn trains them on images of strokes that are drawn
here. We tell `extract` the number of inputs and nothing else; the published attacks are told the architecture.
"""

from __future__ import annotations

import io
import os
import re
import time
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import strokes
from neurecover.data import oracle
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network, load
from neurecover.models.formats.libraries import optional
from neurecover.pipeline import extract

FOLDER = "NEURECOVER_MODELS"
SECONDS = 600.0  # of a network; what is not done then counts as not solved


@dataclass(frozen=True)
class Published:
    """Widths from the inputs to the output, and what the paper prints for them."""

    dims: tuple[int, ...]
    figures: str


# The paper prints its time for a network of 16,721 weights, whose file is not among the public ones.
FOERSTER = "98 minutes for 16,721 weights, architecture told (Foerster et al. 2024)"
KNOWN = (
    Published((784, 16, 16, 1), FOERSTER),
    Published((784, 32, 32, 1), FOERSTER),
    Published((784, 64, 64, 1), FOERSTER),
    Published((784, *[8] * 8, 1), FOERSTER),
    Published((784, *[16] * 8, 1), FOERSTER),
    Published((784, 2, 1), "about 2^20.3 answers, labels only, architecture told (Chen et al. 2024)"),
)


def read_network(path: Path) -> Network | DeepNetwork:
    """Read the ReLU network of a file by its ending."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            found = [(arrays[f"W{i}"], arrays[f"b{i}"]) for i in range(len(arrays.files) // 2)]
        return _network(found)
    if path.suffix == ".onnx":
        network = load(path)
        assert isinstance(network, (Network, DeepNetwork))
        return network
    h5py = optional("h5py", "Keras files", "peers")
    if path.suffix == ".keras":  # an archive with the weights as HDF5
        with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
            return _network(_dense_layers(file))
    with h5py.File(path) as file:
        return _network(_dense_layers(file))


def _dense_layers(file: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pair the kernels with the biases of an HDF5 file, in the order of the layers."""
    arrays: dict[str, np.ndarray] = {}
    file.visititems(lambda name, item: arrays.update({name: item[()]}) if hasattr(item, "dtype") else None)
    by_layer: dict[str, list[np.ndarray]] = {}
    for name in sorted(arrays, key=_natural):
        if "optimizer" not in name and arrays[name].ndim in (1, 2):
            by_layer.setdefault(name.rpartition("/")[0], []).append(arrays[name])
    pairs = [sorted(pair, key=np.ndim) for pair in by_layer.values() if len(pair) == 2]
    return [(kernel.T, bias) for bias, kernel in pairs if kernel.ndim == 2]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which dense_2 comes before dense_10, and dense before both."""
    return [(int(digits or 0), word) for word, digits in re.findall(r"([^\d/]*)(\d*)", name)]


def _network(layers: list[tuple[np.ndarray, np.ndarray]]) -> Network | DeepNetwork:
    double = [(W.astype(float), b.astype(float)) for W, b in layers]
    return DeepNetwork(double) if len(double) > 2 else Network(*double[0], *double[1])


def trained_on_strokes(dims: tuple[int, ...], seed: int = 0) -> Network | DeepNetwork:
    """Train a network of these widths to tell how much ink is in the left half of an image."""
    from sklearn.neural_network import MLPRegressor

    X = strokes(4_000, 28, np.random.default_rng(seed)) / 255.0
    y = X.reshape(-1, 28, 28)[:, :, :14].sum(axis=(1, 2))
    model = MLPRegressor(hidden_layer_sizes=dims[1:-1], max_iter=30, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, (y - y.mean()) / y.std())
    return _network([(W.T, b) for W, b in zip(model.coefs_, model.intercepts_)])


def _widths(network: Network | DeepNetwork) -> tuple[int, ...]:
    return (network.n_inputs, *(len(b) for _, b in network.layers))


def _networks() -> Iterator[tuple[str, Network | DeepNetwork, str]]:
    folder = os.environ.get(FOLDER)
    if folder is None:
        for known in KNOWN:
            yield "trained here", trained_on_strokes(known.dims), known.figures
        return
    for path in sorted(Path(folder).iterdir()):
        if path.suffix in (".npz", ".h5", ".keras", ".onnx"):
            network = read_network(path)
            figures = next((known.figures for known in KNOWN if known.dims == _widths(network)), "")
            yield path.name, network, figures


def _rows(track: Track) -> Iterator[Row]:
    for name, truth, figures in track(list(_networks()), "networks"):
        began, clock = time.process_time(), time.perf_counter()
        found = extract(oracle(truth, truth.n_inputs), random_state=0, time_budget=SECONDS)
        error = np.inf
        if isinstance(found.network, (Network, DeepNetwork)) and _widths(found.network) == _widths(truth):
            comparison = compare(found.network, truth)
            error = max(comparison.weight_error, comparison.bias_error)
        queries = found.n_queries or 0
        yield {
            "file": name,
            "network": "-".join(map(str, _widths(truth))),
            "weights": truth.n_parameters,
            "verdict": found.certificate.verdict,
            "largest error": f"{error:.1e}",
            "queries": queries,
            "log2 queries": round(float(np.log2(max(queries, 1))), 1),
            "CPU seconds": round(time.process_time() - began, 1),
            "seconds": round(time.perf_counter() - clock, 1),
            "published": figures,
        }


EXPERIMENTS = (Experiment("published", "Networks that others published and attacked, widths not told", _rows),)
