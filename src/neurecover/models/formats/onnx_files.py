"""ONNX files: read within bounds and never executed, written with opset 21 and IR version 10.

A file from outside may be truncated, hold millions of nodes, or refer to other files for its weights. Its size is
checked before it is parsed, and weights in other files are refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.models.formats import libraries
from neurecover.models.formats.files import write_whole
from neurecover.models.layered import Layered

OPSET, IR_VERSION = 21, 10  # newer ones are refused by the onnxruntime of today
LARGEST = 2**30  # bytes; protobuf's own limit is twice that

# Activations that are a single node. onnxruntime has those of the second table in single precision only.
_NODES = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "abs": "Abs", "exp": "Exp", "identity": "Identity"}
_SINGLE_NODES = {"softplus": "Softplus", "elu": "Elu", "selu": "Selu", "gelu": "Gelu"}
_SELU = (1.6732632423543772, 1.0507009873554805)  # α and λ of Klambauer et al. 2017


def read_onnx(path: str | os.PathLike[str]) -> Any:
    """Read the file as an onnx `ModelProto` that contains all its weights."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {file}.")
    size = file.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{file}: expected an ONNX file of at most {LARGEST:,} bytes. Got {size:,} instead.")
    onnx = libraries.onnx()
    try:
        model = onnx.load_model_from_string(file.read_bytes())
    except Exception as error:  # protobuf's DecodeError, whose module depends on the build of protobuf
        raise ValueError(f"{file} is not a readable ONNX file: it is damaged or cut off ({error}).") from None
    if not model.HasField("graph") or not model.graph.output:
        raise ValueError(f"{file} is not a readable ONNX file: it has no graph with an output, or is cut off.")
    elsewhere = [tensor.name for tensor in _tensors(onnx, model.graph) if tensor.data_location == tensor.EXTERNAL]
    if elsewhere:
        raise ValueError(
            f"{file} keeps the weights {elsewhere[0]!r} in another file, which is not followed. "
            "Save it with its weights inside: torch.onnx.export(..., external_data=False)."
        )
    return model


def to_onnx(network: Layered, path: str | os.PathLike[str], dtype: str) -> None:
    """Write Gemm nodes with activations between them, and C x as MatMul and Add; a failure leaves no partial file."""
    if dtype not in ("float64", "float32"):
        raise ValueError(f"to_onnx writes dtype 'float64' or 'float32'. Got {dtype!r} instead.")
    onnx = libraries.onnx()
    helper, kind = onnx.helper, onnx.TensorProto.DOUBLE if dtype == "float64" else onnx.TensorProto.FLOAT
    layers, nodes = network.layers, []
    weights: dict[str, np.ndarray] = {}
    value = "x"
    for number, (W, b) in enumerate(layers, start=1):
        last = number == len(layers)
        name, bias, z = f"W{number}", f"b{number}", f"z{number}"
        if last and network.C is None:
            z = "y"
        nodes.append(helper.make_node("Gemm", [value, name, bias], [z], transB=1))
        weights |= {name: W, bias: b}
        if last and network.C is not None:
            nodes.append(helper.make_node("MatMul", ["x", "Ct"], ["s"]))
            nodes.append(helper.make_node("Add", [z, "s"], ["y"]))
            weights["Ct"] = network.C.T
        if not last:
            value = f"h{number}"
            nodes += activation_nodes(str(network.activation), z, value, dtype)
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, ["n", network.n_inputs])],
        [helper.make_tensor_value_info("y", kind, ["n", network.n_outputs])],
        [onnx.numpy_helper.from_array(array.astype(dtype), name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, producer_name="neurecover", opset_imports=opset, ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    content = model.SerializeToString()
    write_whole(path, lambda target: target.write_bytes(content))


def activation_nodes(spec: str, z: str, h: str, dtype: str) -> list[Any]:
    """Return the nodes of h = act(z); if there are several, the first names the activation in its `doc_string`."""
    onnx = libraries.onnx()
    make = onnx.helper.make_node
    name, _, parameter = spec.rstrip(")").partition("(")
    single = dtype == "float32"
    if spec in _NODES or (single and spec in _SINGLE_NODES):
        return [make({**_NODES, **_SINGLE_NODES}[spec], [z], [h])]
    if single and name == "leaky_relu":
        return [make("LeakyRelu", [z], [h], alpha=float(parameter))]
    # Each step is an operation and its arguments: z, a number, or the index of an earlier step's result.
    bodies: dict[str, list[tuple[Any, ...]]] = {
        "square": [("Mul", "z", "z")],
        "silu": [("Sigmoid", "z"), ("Mul", "z", 0)],
        "softplus": [("Abs", "z"), ("Neg", 0), ("Exp", 1), ("Add", 2, 1.0), ("Log", 3), ("Relu", "z"), ("Add", 4, 5)],
        "elu": [("Min", "z", 0.0), ("Exp", 0), ("Sub", 1, 1.0), ("Relu", "z"), ("Add", 2, 3)],
        "selu": [
            *[("Min", "z", 0.0), ("Exp", 0), ("Sub", 1, 1.0), ("Mul", 2, _SELU[0])],
            *[("Relu", "z"), ("Add", 3, 4), ("Mul", 5, _SELU[1])],
        ],
    }
    if name == "leaky_relu":
        slope = float(parameter)
        # z₊ − slope·z₋ is the larger of z and slope·z for slopes below one, the smaller above.
        bodies[spec] = [("Mul", "z", slope), ("Max" if slope < 1.0 else "Min", "z", 0)]
    if spec not in bodies:
        known = ", ".join([*_NODES, *bodies, *([*_SINGLE_NODES] if single else []), "leaky_relu"])
        raise ValueError(f"ONNX files in {dtype} are written for the activations {known}. Got {spec} instead.")
    return _written(bodies[spec], spec, z, h, dtype)


def _written(body: list[tuple[Any, ...]], spec: str, z: str, h: str, dtype: str) -> list[Any]:
    onnx = libraries.onnx()
    nodes: list[Any] = []
    for place, (operation, *arguments) in enumerate(body):
        names = []
        for argument in arguments:
            if isinstance(argument, float):
                names.append(f"{h}_number{place}")
                tensor = onnx.numpy_helper.from_array(np.array(argument, dtype=dtype))
                nodes.append(onnx.helper.make_node("Constant", [], [names[-1]], value=tensor))
            else:
                names.append(z if argument == "z" else f"{h}_{argument}")
        result = h if place == len(body) - 1 else f"{h}_{place}"
        nodes.append(onnx.helper.make_node(operation, names, [result]))
    nodes[0].doc_string = spec
    return nodes


def _tensors(onnx: Any, graph: Any) -> list[Any]:
    """Return all weights of a graph, from its initializers and from its nodes."""
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                found.append(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                found += _tensors(onnx, attribute.g)
    return found
