"""Read the network in an ONNX graph by following the values from the input to the output, node by node.

If the output is the sum of two values, each is followed separately, and one of them must be an affine term.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from neurecover.models.deep import DeepNetwork
from neurecover.models.formats import libraries
from neurecover.models.formats.chain import Chain
from neurecover.models.formats.onnx_files import activation_nodes, read_onnx
from neurecover.models.network import Network

_ACTIVATIONS = {
    "Relu": "relu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Abs": "abs",
    "Exp": "exp",
    "Identity": "identity",
    "Softplus": "softplus",
}


def from_onnx(path: str | os.PathLike[str]) -> Network | DeepNetwork:
    """Read a chain of Gemm, MatMul, Add and one activation, and a parallel one of Gemm, MatMul and Add as affine term.

    Identity, Flatten and Dropout are skipped.
    """
    graph = read_onnx(path).graph
    try:
        return _walked(graph, os.fspath(path))
    except (TypeError, KeyError, IndexError) as error:  # names that are not text, attributes of the wrong type
        raise ValueError(f"{path} is a damaged ONNX file ({error}).") from None


def _walked(graph: Any, path: str) -> Network | DeepNetwork:
    nodes = list(graph.node)
    walk = _Walk(graph, nodes, path)
    inputs = [value.name for value in graph.input if value.name not in walk.constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise ValueError(f"{path}: expected one input and one output. Got {len(inputs)} and {len(graph.output)}.")
    target = graph.output[0].name
    makers = [node for node in nodes if target in node.output]
    terms = makers[0].input if len(makers) == 1 and makers[0].op_type == "Add" else ()
    if len(terms) == 2 and not set(terms) & walk.constants.keys():
        chain, beside = (_Walk(graph, _behind(nodes, term), path).follow(inputs[0], term) for term in terms)
        chain.add(beside)
        return chain.network()
    return walk.follow(inputs[0], target).network()


def _behind(nodes: list[Any], value: str) -> list[Any]:
    """Return the nodes on which the value depends, in the order of the file."""
    makers: dict[str, list[Any]] = {}
    for node in nodes:
        for name in node.output:
            makers.setdefault(name, []).append(node)
    wanted, waiting = {value}, [value]
    while waiting:
        for node in makers.get(waiting.pop(), []):
            new = set(node.input) - wanted
            wanted |= new
            waiting += new
    return [node for node in nodes if wanted.intersection(node.output)]


class _Walk:
    """A walk through the graph: the nodes by the value they take, the weights by name, and the chain so far."""

    def __init__(self, graph: Any, nodes: list[Any], origin: str) -> None:
        helper = libraries.onnx().numpy_helper
        self.chain, self.origin = Chain(origin), origin
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.takers: dict[str, list[Any]] = {}
        self.groups: dict[str, list[Any]] = {}  # nodes by the name of their result up to an underscore
        for node in nodes:
            self.groups.setdefault("".join(node.output).partition("_")[0], []).append(node)
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
            for name in node.input:
                self.takers.setdefault(name, []).append(node)
        self._read = helper.to_array

    def follow(self, value: str, target: str) -> Chain:
        """Return the chain from one value to the other."""
        passed: set[str] = set()
        while value != target:
            if value in passed:
                raise ValueError(
                    f"{self.origin}: expected values that follow each other. Got a cycle through {value!r} instead."
                )
            passed.add(value)
            value = self.step(value)
        return self.chain

    def step(self, value: str) -> str:
        """Add the operation on this value to the chain, and return the name of its result."""
        own = self._own_activation(value)
        if own is not None:
            return own
        takers = self.takers.get(value, [])
        if len(takers) != 1:
            raise ValueError(
                f"{self.origin}: expected the value {value!r} to go to one node. It goes to {len(takers)} instead."
            )
        node = takers[0]
        if node.domain not in ("", "ai.onnx") or len(node.output) < 1:
            raise ValueError(f"{self.origin}: expected nodes of ONNX itself. Got {node.domain}.{node.op_type} instead.")
        options = {a.name: libraries.onnx().helper.get_attribute_value(a) for a in node.attribute}
        others = [name for name in node.input if name != value]
        if len(node.input) - len(others) != 1 or (node.op_type != "Add" and node.input[0] != value):
            raise ValueError(f"{self.origin}: {node.op_type} takes the value {value!r} in a way that no layer does.")
        self._add(node.op_type, others, options)
        return node.output[0]

    def _add(self, kind: str, others: list[str], options: dict[str, Any]) -> None:
        chain = self.chain
        if kind == "Gemm" and not options.get("transA", 0):
            B = self._weights(others[0]) * options.get("alpha", 1.0)
            rows = B if options.get("transB", 0) else B.T
            chain.affine(rows)
            if len(others) > 1:
                chain.scale(1.0, self._row(others[1]) * options.get("beta", 1.0))
        elif kind == "MatMul":
            chain.affine(self._weights(others[0]).T)
        elif kind == "Add":
            chain.scale(1.0, self._row(others[0]))
        elif kind == "LeakyRelu":
            # ONNX stores the slope in single precision; its shortest decimal form is the number that was written.
            chain.activation(f"leaky_relu({np.float32(options.get('alpha', 0.01))!s})")
        elif kind == "Elu" and options.get("alpha", 1.0) == 1.0:
            chain.activation("elu")
        elif kind == "Gelu" and options.get("approximate", b"none") == b"none":
            chain.activation("gelu")
        elif kind == "Selu" and not options:
            chain.activation("selu")
        elif kind in _ACTIVATIONS:
            chain.activation(_ACTIVATIONS[kind])
        elif not (kind == "Flatten" and options.get("axis", 1) == 1) and not (kind == "Dropout" and len(others) < 2):
            raise ValueError(
                f"{self.origin}: expected Gemm, MatMul, Add, Flatten and an activation. Got the node {kind} instead; "
                "to ask the file instead of reading it, use neurecover.oracle."
            )

    def _own_activation(self, value: str) -> str | None:
        """Recognise an activation that `to_onnx` wrote as several nodes; return the name of its result, or None."""
        result = f"h{value[1:]}"
        nodes = self.groups.get(result, [])
        if not value.startswith("z") or not nodes or not nodes[0].doc_string:
            return None
        for dtype in ("float64", "float32"):
            try:
                expected = activation_nodes(nodes[0].doc_string, value, result, dtype)
            except ValueError:
                continue
            if nodes == expected:
                self.chain.activation(nodes[0].doc_string)
                return result
        return None

    def _row(self, name: str) -> np.ndarray:
        """Return a constant that is added to every row of the batch."""
        array = self._weights(name)
        if array.ndim > 1 and array.shape[-1] != array.size:
            raise ValueError(f"{self.origin}: expected one row to add to all. Got {name!r} of shape {array.shape}.")
        return array.ravel()

    def _weights(self, name: str) -> np.ndarray:
        if name not in self.constants:
            raise ValueError(f"{self.origin}: expected {name!r} to be weights in the file. It is computed instead.")
        try:
            return np.asarray(self._read(self.constants[name]), dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.origin}: the weights {name!r} are damaged ({error}).") from None
