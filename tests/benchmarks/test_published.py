"""Networks in the files that others publish are read as they are."""

import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.published import read_network, trained_on_strokes
from neurecover.models import DeepNetwork

h5py = pytest.importorskip("h5py")
DIMS = (5, 4, 3, 2, *[2] * 9, 1)  # more than ten layers: dense_10 comes after dense_9


@pytest.fixture
def layers() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((b, a)), rng.standard_normal(b)) for a, b in pairwise(DIMS)]


def _layer(i: int) -> str:
    return "dense" if i == 0 else f"dense_{i}"


def _older_keras(path: Path, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    with h5py.File(path, "w") as file:
        for i, (W, b) in enumerate(layers):
            file[f"model_weights/{_layer(i)}/{_layer(i)}/kernel:0"] = W.T
            file[f"model_weights/{_layer(i)}/{_layer(i)}/bias:0"] = b
        file["optimizer_weights/Adam/iterations:0"] = 7
        file["optimizer_weights/Adam/dense/kernel/m:0"] = layers[0][0].T


def _keras(path: Path, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    inner = path.with_name("weights.h5")
    with h5py.File(inner, "w") as file:
        for i, (W, b) in enumerate(layers):
            file[f"layers/{_layer(i)}/vars/0"], file[f"layers/{_layer(i)}/vars/1"] = W.T, b
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(inner, "model.weights.h5")


def _arrays(path: Path, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    np.savez(path, **{f"{name}{i}": part for i, pair in enumerate(layers) for name, part in zip("Wb", pair)})


def _onnx(path: Path, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    DeepNetwork(layers).to_onnx(path, "float64")


@pytest.mark.parametrize(
    ("name", "write"), [("a.h5", _older_keras), ("a.keras", _keras), ("a.npz", _arrays), ("a.onnx", _onnx)]
)
def test_every_kind_of_file_is_read(tmp_path: Path, layers: list, name: str, write) -> None:
    write(tmp_path / name, layers)
    network = read_network(tmp_path / name)
    assert len(network.layers) == len(layers)
    for (W, b), (true_W, true_b) in zip(network.layers, layers):
        np.testing.assert_array_equal(W, true_W)
        np.testing.assert_array_equal(b, true_b)


def test_a_network_of_the_same_shape_stands_in_where_there_are_no_files() -> None:
    network = trained_on_strokes((784, 3, 2, 1))
    assert [W.shape for W, _ in network.layers] == [(3, 784), (2, 3), (1, 2)]
