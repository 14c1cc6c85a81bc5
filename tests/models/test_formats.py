"""Networks to and from PyTorch, ONNX and scikit-learn: the same weights bit by bit, the same answers to rounding."""

import contextlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from torch import nn

import neurecover as nr
from neurecover.models import network_of
from neurecover.models.formats.onnx_files import LARGEST

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

Net = nr.Network | nr.DeepNetwork
ACTIVATIONS = ("relu", "leaky_relu(0.1)", "leaky_relu(3)", "sigmoid", "tanh", "softplus", "silu", "elu", "selu", "gelu")
ONNX_ALONE = ("abs", "exp", "square")


def known(*specs: str) -> list[str]:
    """Those among the specs that the library has a name for."""
    from neurecover.activations import NAMES

    return [spec for spec in specs if spec.partition("(")[0] in NAMES]


def network(activation: str, *hidden: int, seed: int = 0, affine: bool = False) -> Net:
    rng = np.random.default_rng(seed)
    widths = (4, *hidden, 2)
    layers = [(rng.standard_normal((m, n)) / np.sqrt(n), rng.standard_normal(m)) for n, m in pairwise(widths)]
    return network_of(layers, activation, rng.standard_normal((2, 4)) if affine else None)


def assert_same(found: Net, truth: Net) -> None:
    assert type(found) is type(truth)
    assert found.activation == truth.activation
    for (W, b), (V, c) in zip(found.layers, truth.layers, strict=True):
        np.testing.assert_array_equal(W, V)
        np.testing.assert_array_equal(b, c)
    np.testing.assert_array_equal(found.C, truth.C)


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(found - truth).max() / np.abs(truth).max())


X = np.random.default_rng(1).standard_normal((200, 4))
either_depth = pytest.mark.parametrize("hidden", [(5,), (6, 5, 3)], ids=str)


with_or_without = pytest.mark.parametrize("affine", [False, True], ids=["plain", "affine"])


@either_depth
@with_or_without
@pytest.mark.parametrize("activation", known(*ACTIVATIONS))
def test_torch_and_back(activation: str, hidden: tuple[int, ...], affine: bool) -> None:
    truth = network(activation, *hidden, affine=affine)
    state = torch.get_rng_state()
    module = truth.to_torch()
    assert (type(module) is nn.Sequential) is not affine
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(nr.Network.from_torch(module), truth)
    with torch.no_grad():
        assert relative(module(torch.from_numpy(X)).numpy(), truth(X)) < 1e-14
        single = truth.to_torch("float32")(torch.from_numpy(X).float())
    assert single.dtype == torch.float32
    assert relative(single.numpy(), truth(X)) < 1e-5


@either_depth
@with_or_without
@pytest.mark.parametrize("activation", known(*ACTIVATIONS, *ONNX_ALONE))
def test_onnx_and_back(activation: str, hidden: tuple[int, ...], affine: bool, tmp_path: Path) -> None:
    truth = network(activation, *hidden, affine=affine)
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        if (activation, dtype) == ("gelu", "float64"):  # onnxruntime has no erf in double precision
            with pytest.raises(ValueError, match="ONNX files in float64 are written for"):
                truth.to_onnx(tmp_path / "net.onnx", dtype)
            continue
        truth.to_onnx(tmp_path / "net.onnx", dtype)
        model = onnx.load(tmp_path / "net.onnx")
        assert (model.ir_version, model.opset_import[0].version) == (10, 21)
        session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
        if activation == "exp" and len(hidden) > 1:
            continue  # e^e^e^x is no number
        assert relative(session.run(None, {"x": X.astype(dtype)})[0], truth(X)) < tolerance
    truth.to_onnx(tmp_path / "net.onnx", "float64" if activation != "gelu" else "float32")
    if activation != "gelu":
        assert_same(nr.load(tmp_path / "net.onnx"), truth)  # type: ignore[arg-type]


@either_depth
@pytest.mark.parametrize("activation", known("relu", "tanh", "sigmoid"))
def test_scikit_learn_and_back(activation: str, hidden: tuple[int, ...]) -> None:
    truth = network(activation, *hidden)
    regressor = truth.to_sklearn()
    assert_same(nr.Network.from_sklearn(regressor), truth)
    assert relative(regressor.predict(X), truth(X)) < 1e-15
    assert regressor.get_params()["hidden_layer_sizes"] == hidden
    fitted = MLPRegressor(hidden_layer_sizes=hidden, max_iter=3).fit(X, X[:, :2])
    # What predict, score and partial printing look at is there.
    assert {name for name in vars(fitted) if name.endswith("_")} - set(vars(regressor)) <= {
        "validation_scores_",
        "best_validation_score_",
    }


def test_scikit_learn_has_no_affine_term() -> None:
    with pytest.raises(ValueError, match=r"scikit-learn's perceptrons have no affine term. Got a network with C"):
        network("relu", 5, affine=True).to_sklearn()


def test_a_module_with_an_affine_term_is_saved_and_traced_without_this_library(tmp_path: Path) -> None:
    truth = network("relu", 5, affine=True)
    module = truth.to_torch()
    assert set(module.state_dict()) == {
        "affine.weight",
        *(f"layers.{i}.{p}" for i in (0, 2) for p in ("weight", "bias")),
    }
    torch.save(module, tmp_path / "net.pt")
    assert b"neurecover" not in (tmp_path / "net.pt").read_bytes()
    again = torch.load(tmp_path / "net.pt", weights_only=False)
    with torch.no_grad():
        assert relative(again(torch.from_numpy(X)).numpy(), truth(X)) < 1e-14
    torch.onnx.export(module.float(), (torch.zeros(1, 4),), tmp_path / "net.onnx", dynamo=False)
    assert relative(nr.load(tmp_path / "net.onnx")(X), truth(X)) < 1e-6


class Beside(nn.Module):
    """A linear part with a bias of its own, scaled outputs, and x itself added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.line = nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 4)
        self.scale, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.norm.running_var = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.scale(self.line(x) + self.outer(torch.tanh(self.inner(x)))))


class TwoBranches(Beside):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x))) + self.outer(torch.tanh(self.inner(2.0 * x)))


class IntoHidden(Beside):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(torch.tanh(self.outer(torch.tanh(self.inner(x))) + x))


def test_affine_parts_of_a_module_are_one_affine_term() -> None:
    module = Beside().double().eval()
    found = nr.Network.from_torch(module)
    assert isinstance(found, nr.Network)
    assert found.C is not None
    with torch.no_grad():
        assert relative(found(X), module(torch.from_numpy(X)).numpy()) < 1e-14


def test_a_recovered_network_with_an_affine_term_behind_a_scaler() -> None:
    """The scaler is part of the layers and of C alike."""
    estimator, scaler = nr.NetworkRecovery(), StandardScaler().fit(3.0 * X + 1.0)
    estimator.network_ = network("relu", 5, affine=True)
    found = nr.Network.from_sklearn(make_pipeline(scaler, estimator))
    assert relative(found(X), estimator.network_(scaler.transform(X))) < 1e-14
    assert found.C is not None


def test_one_output_is_predicted_flat() -> None:
    truth = nr.Network(np.eye(2), None, [[1.0, -1.0]])
    assert truth.to_sklearn().predict(X[:, :2]).shape == (200,)


class Written(nn.Module):
    """As people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(5, 2)
        self.first = nn.Linear(4, 5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(torch.relu(self.first(torch.flatten(x, 1)))))


class Skipping(Written):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x))
        return self.second(h + h)


def test_modules_are_followed_step_by_step() -> None:
    module = Written().double().eval()
    found = nr.Network.from_torch(module)
    with torch.no_grad():
        assert relative(module(torch.from_numpy(X)).numpy(), found(X)) < 1e-14
    assert isinstance(found, nr.Network)
    norms = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.LeakyReLU(0.2), nn.Linear(5, 5, bias=False)).double()
    norms.train()(torch.from_numpy(X) * 3 + 1)
    found = nr.Network.from_torch(norms)
    with torch.no_grad():
        assert relative(norms.eval()(torch.from_numpy(X)).numpy(), found(X)) < 1e-14
    affine = nr.Network.from_torch(nn.Linear(4, 3))
    assert (type(affine), affine.n_hidden) == (nr.DeepNetwork, ())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Skipping(), "takes other values as well|no network has"),
        (TwoBranches(), "no network has"),
        (IntoHidden(), "expected a skip connection that leads x straight to the outputs"),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2), nn.Sigmoid()), "Got relu and then sigmoid"),
        (nn.Sequential(nn.Conv1d(1, 2, 3)), "Got Conv1d"),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 5)), "expected a linear layer first"),
        (nn.Sequential(nn.Linear(4, 5), nn.GELU(approximate="tanh"), nn.Linear(5, 1)), "Got GELU"),
    ],
)
def test_modules_that_are_no_network_are_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nr.Network.from_torch(module)


def test_files_of_torch_are_never_unpickled(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "net.pt")
    with pytest.raises(ValueError, match="may run code when it is read"):
        nr.Network.from_torch(tmp_path / "net.pt")
    with pytest.raises(ValueError, match="may run code when it is read"):
        nr.oracle(tmp_path / "net.pt")
    with pytest.raises(TypeError, match="Got int instead"):
        nr.Network.from_torch(3)


@pytest.mark.parametrize("dynamo", [False, True])
def test_what_torch_exports_is_read(dynamo: bool, tmp_path: Path) -> None:
    parts = [nn.Linear(4, 5), nn.LeakyReLU(0.05), nn.Linear(5, 3), nn.LeakyReLU(0.05), nn.Linear(3, 2)]
    module = nn.Sequential(*parts).eval()
    options = {"external_data": False} if dynamo else {"dynamo": False}
    torch.onnx.export(module, (torch.zeros(1, 4),), tmp_path / "net.onnx", **options)
    assert_same(nr.load(tmp_path / "net.onnx"), nr.Network.from_torch(module))  # type: ignore[arg-type]


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler])
def test_scalers_are_folded_into_the_layers(scaler: type) -> None:
    data = X * [1.0, 100.0, 0.01, 3.0] + [0.0, 5e3, 1.0, -2.0]
    model = TransformedTargetRegressor(
        make_pipeline(scaler(), MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, random_state=0)),
        transformer=StandardScaler(),
    ).fit(data, 50.0 + 7.0 * np.abs(X[:, 0]))
    found = nr.Network.from_sklearn(model)
    assert isinstance(found, nr.Network)
    # The mean of 5e3 at a spread of 100 costs two digits.
    assert relative(found(data)[:, 0], model.predict(data)) < 1e-12


def test_classifiers_give_their_logits() -> None:
    for classes in (2, 4):
        y = np.digitize(X[:, 0], np.linspace(-1, 1, classes + 1)[1:-1])
        model = MLPClassifier(hidden_layer_sizes=(5,), max_iter=30, random_state=0).fit(X, y)
        P = model.predict_proba(X)
        found = nr.Network.from_sklearn(model)
        np.testing.assert_allclose(found(X), np.log(P[:, 1:] / P[:, :1]), rtol=0, atol=1e-12)


def test_estimators_that_are_no_network_are_refused() -> None:
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.exceptions import NotFittedError

    with pytest.raises(ValueError, match="Got GradientBoostingRegressor"):
        nr.Network.from_sklearn(GradientBoostingRegressor(n_estimators=2).fit(X, X[:, 0]))
    with pytest.raises(NotFittedError):
        nr.Network.from_sklearn(MLPRegressor())
    clipping = make_pipeline(MinMaxScaler(clip=True), MLPRegressor(max_iter=2)).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="a scaler that clips"):
        nr.Network.from_sklearn(clipping)
    with pytest.raises(ValueError, match="have the activations"):
        network("leaky_relu(0.1)", 5).to_sklearn()


def graph_of(*nodes: onnx.NodeProto, weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    helper, kind = onnx.helper, onnx.TensorProto.DOUBLE
    values = [helper.make_tensor_value_info(name, kind, ["n", 4]) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(kind: str, inputs: str, output: str, **options: object) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, inputs.split(), [output], **options)


def test_matmul_add_and_gemm_in_all_their_forms(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    W, V, b = rng.standard_normal((4, 4)), rng.standard_normal((4, 4)), rng.standard_normal((1, 4))
    model = graph_of(
        node("Flatten", "x", "f"),
        node("MatMul", "f W", "m"),
        node("Add", "b m", "a"),
        node("Relu", "a", "r"),
        node("Gemm", "r V b", "y", alpha=2.0, beta=-1.0),
        weights={"W": W, "V": V, "b": b},
    )
    onnx.save(model, tmp_path / "net.onnx")
    found = nr.Network.from_onnx(tmp_path / "net.onnx")
    expected = onnxruntime.InferenceSession(tmp_path / "net.onnx").run(None, {"x": X})[0]
    assert relative(found(X), expected) < 1e-14


HOSTILE = {
    "a cycle": (graph_of(node("Relu", "x", "a"), node("Tanh", "a", "b"), node("Relu", "b", "a")), "linear layer first"),
    "a cycle of values": (
        graph_of(node("Identity", "x", "a"), node("Identity", "a", "b"), node("Identity", "b", "a")),
        "Got a cycle",
    ),
    "no way": (graph_of(node("Identity", "x", "a")), "It goes to 0 instead"),
    "a fork": (graph_of(node("Relu", "x", "a"), node("Tanh", "x", "b"), node("Add", "a b", "y")), "linear layer first"),
    "two branches": (
        graph_of(
            *[node("MatMul", "x W", "a"), node("Relu", "a", "b"), node("MatMul", "x W", "c"), node("Relu", "c", "d")],
            node("Add", "b d", "y"),
            weights={"W": np.eye(4)},
        ),
        "Got two that are not",
    ),
    "a skip into a hidden layer": (
        graph_of(
            *[node("MatMul", "x W", "a"), node("Relu", "a", "b"), node("Add", "b x", "c"), node("Relu", "c", "y")],
            weights={"W": np.eye(4)},
        ),
        "It goes to 2",
    ),
    "an affine term of another width": (
        graph_of(
            *[node("MatMul", "x W", "a"), node("Relu", "a", "b"), node("MatMul", "x V", "c"), node("Add", "b c", "y")],
            weights={"W": np.eye(4), "V": np.ones((4, 1))},
        ),
        "expected 4 values of 4 inputs to be added. Got 1 of 4",
    ),
    "weights that are computed": (graph_of(node("Relu", "w", "v"), node("MatMul", "x v", "y")), "computed instead"),
    "a foreign node": (graph_of(node("Softmax", "x", "y")), "Got the node Softmax"),
    "a foreign domain": (graph_of(node("Relu", "x", "y", domain="com.evil")), "Got com.evil.Relu"),
    "a bias per sample": (
        graph_of(node("MatMul", "x W", "m"), node("Add", "m b", "y"), weights={"W": np.eye(4), "b": np.ones((4, 1))}),
        "one row to add",
    ),
    "weights of another size": (
        graph_of(
            node("MatMul", "x W", "m"), node("MatMul", "m V", "y"), weights={"W": np.ones((4, 3)), "V": np.ones((4, 4))}
        ),
        "fit the 3 below",
    ),
    "a step back to front": (graph_of(node("MatMul", "W x", "y"), weights={"W": np.eye(4)}), "no layer does"),
    "another reading of the rows": (graph_of(node("Flatten", "x", "y", axis=0)), "Got the node Flatten"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_graphs_that_are_no_network_are_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    model, message = HOSTILE[name]
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=message):
        nr.load(tmp_path / "net.onnx")


def test_weights_elsewhere_false_sizes_and_files_too_large(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    model = graph_of(node("MatMul", "x W", "y"), weights={"W": np.eye(4)})
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    with pytest.raises(ValueError, match="in another file, which is not followed"):
        nr.load(path)
    with pytest.raises(ValueError, match="in another file, which is not followed"):
        nr.oracle(path)
    model = graph_of(node("MatMul", "x W", "y"), weights={"W": np.eye(4)})
    model.graph.initializer[0].dims[:] = [2**40, 4]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="the weights 'W' are damaged"):
        nr.load(path)
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)  # a hole, which takes no room on the disk
    with pytest.raises(ValueError, match="expected an ONNX file of at most"):
        nr.load(path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        nr.load(tmp_path / "none.onnx")


def test_a_file_cut_off_or_damaged_anywhere_is_refused_or_read_as_it_stands(tmp_path: Path) -> None:
    truth, path = network("leaky_relu(0.1)", 3), tmp_path / "net.onnx"
    truth.to_onnx(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        try:
            found = nr.load(path)
        except ValueError:
            continue
        assert_same(found, truth)  # type: ignore[arg-type]
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            nr.load(path)


def test_activations_of_several_nodes_are_believed_only_as_they_are_written(tmp_path: Path) -> None:
    """A file that says leaky_relu and computes something else is not read as leaky_relu."""
    path = tmp_path / "net.onnx"
    network("leaky_relu(0.1)", 3).to_onnx(path)
    model = onnx.load(path)
    (largest,) = (n for n in model.graph.node if n.op_type == "Max")
    largest.op_type = "Min"
    onnx.save(model, path)
    with pytest.raises(ValueError, match="goes to 2 instead"):
        nr.load(path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    network("relu", 3).to_onnx(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="Got 'float16'"):
        network("relu", 4).to_onnx(path, "float16")
    with pytest.raises(ValueError, match="Got 'float16'"):
        network("relu", 4).to_torch("float16")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
