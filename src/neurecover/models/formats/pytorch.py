"""PyTorch modules: read by tracing `forward`, written as `nn.Sequential`, plus a linear layer for an affine term."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from neurecover.models.deep import DeepNetwork
from neurecover.models.formats import libraries
from neurecover.models.formats.chain import Chain
from neurecover.models.layered import Layered
from neurecover.models.network import Network

_ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu", "SELU": "selu"}
_FUNCTIONS = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "silu": "silu", "selu": "selu", "relu_": "relu"}
_NOTHING = {"Flatten", "Identity", "Dropout"}  # modules that do nothing to rows of numbers in eval mode

_STRAIGHT = 40.0  # softplus threshold beyond which torch uses the identity; the error is e^{−40} < 1e-17


def from_torch(module: Any) -> Network | DeepNetwork:
    """Read a module in which every step takes one earlier result; two results may be added if one is affine in x."""
    if isinstance(module, str | os.PathLike):
        raise ValueError(
            f"from_torch takes a torch.nn.Module. Got the path {os.fspath(module)} instead: a file of PyTorch may run "
            "code when it is read, so load it yourself, or export the module with torch.onnx.export."
        )
    torch = libraries.torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"from_torch takes a torch.nn.Module. Got {type(module).__name__} instead.")
    # The tracer would look inside a single layer, so it is wrapped.
    parts = module if next(module.children(), None) is not None else torch.nn.Sequential(module)
    return _followed(torch, parts, Chain(f"the module {type(module).__name__}")).network()


def to_torch(network: Layered, dtype: str) -> Any:
    """Return an `nn.Sequential`; with an affine term, a module with the sequence as `layers` and C as `affine`."""
    torch = libraries.torch()
    kind = {"float64": torch.float64, "float32": torch.float32}.get(dtype)
    if kind is None:
        raise ValueError(f"to_torch writes dtype 'float64' or 'float32'. Got {dtype!r} instead.")
    modules: list[Any] = []
    for W, b in network.layers:
        modules += [_linear(torch, W, b, kind), _activation_module(torch.nn, network)]
    layers = torch.nn.Sequential(*modules[:-1])
    if network.C is None:
        return layers
    # x ↦ layers(x) + affine(x) as a graph: a class of our own could not be unpickled without this library.
    parts, graph = torch.nn.Module(), torch.fx.Graph()
    parts.layers, parts.affine = layers, _linear(torch, network.C, None, kind)
    x = graph.placeholder("x")
    terms = tuple(graph.call_module(name, (x,)) for name in ("layers", "affine"))
    graph.output(graph.call_function(operator.add, terms))
    return torch.fx.GraphModule(parts, graph, type(network).__name__)


def _linear(torch: Any, W: np.ndarray, b: np.ndarray | None, kind: Any) -> Any:
    """Return x ↦ W x + b, made without random weights, so that torch's own generator is not advanced."""
    layer = torch.nn.utils.skip_init(torch.nn.Linear, W.shape[1], W.shape[0], bias=b is not None, dtype=kind)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(W.copy()))
        if b is not None:
            layer.bias.copy_(torch.from_numpy(b.copy()))
    return layer


def _activation_module(nn: Any, network: Layered) -> Any:
    spec = str(network.activation)
    name, _, parameter = spec.rstrip(")").partition("(")
    made: dict[str, Callable[[], Any]] = {spec: getattr(nn, module) for module, spec in _ACTIVATIONS.items()}
    made |= {"identity": nn.Identity, "gelu": nn.GELU, "elu": nn.ELU}
    made["softplus"] = lambda: nn.Softplus(threshold=_STRAIGHT)
    if name == "leaky_relu":
        return nn.LeakyReLU(float(parameter))
    if spec not in made:
        raise ValueError(f"PyTorch modules exist for {', '.join([*made, 'leaky_relu'])}. Got {spec} instead.")
    return made[spec]()


def _followed(torch: Any, module: Any, start: Chain) -> Chain:
    """Trace `forward` and add its steps to the chain, node by node."""
    name = type(module).__name__
    known = "linear layers, batch norms and activations in a row"
    try:
        graph = torch.fx.symbolic_trace(module).graph
    except Exception as error:  # forward is arbitrary code, so tracing it may raise any error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"The module {name} cannot be followed as {known} ({reason}).") from None
    chains: dict[Any, Chain] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and chains:
            raise ValueError(
                f"The module {name} takes several inputs. Only a module with one input, a row of numbers, can be read."
            )
        if node.op == "placeholder":
            chains[node] = start
            continue
        if node.op == "output":
            break
        below = node.all_input_nodes
        if len(below) not in (1, 2) or (len(below) == 2 and not _adds(node)):
            raise ValueError(f"The module {name} is not {known}: {node.name} takes other values as well.")
        chains[node] = chains[below[0]].split()
        if len(below) == 2:
            chains[node].add(chains[below[1]].split())
        else:
            _step(torch, module, node)(chains[node])
    if not isinstance(node.args[0], torch.fx.Node):
        raise ValueError(f"The module {name} does not answer with the result of one of its steps.")
    return chains[node.args[0]]


def _adds(node: Any) -> bool:
    """Return whether the node is the plain sum a + b of two values."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in ("add", "iadd") and node.op != "call_module" and len(node.args) == 2 and not node.kwargs


def _step(torch: Any, module: Any, node: Any) -> Callable[[Chain], None]:
    if node.op == "call_module":
        return _module_step(torch.nn, module.get_submodule(node.target))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in _FUNCTIONS and len(node.args) == 1:
        return lambda chain: chain.activation(_FUNCTIONS[name])
    if name == "leaky_relu":
        slope = node.kwargs.get("negative_slope", node.args[1] if len(node.args) > 1 else 0.01)
        return lambda chain: chain.activation(f"leaky_relu({slope!r})")
    if name == "flatten" and (*node.args[1:], *node.kwargs.values()) == (1,):
        return lambda chain: None
    raise ValueError(f"The module {type(module).__name__} has a step that no network has: {name or node.target}.")


def _module_step(nn: Any, part: Any) -> Callable[[Chain], None]:
    name = type(part).__name__
    if isinstance(part, nn.Linear):
        return lambda chain: chain.affine(_array(part.weight), None if part.bias is None else _array(part.bias))
    if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
        spread = np.sqrt(_array(part.running_var) + part.eps)
        factor = (_array(part.weight) if part.affine else 1.0) / spread
        shift = (_array(part.bias) if part.affine else 0.0) - factor * _array(part.running_mean)
        return lambda chain: chain.scale(factor, shift)
    if name in _NOTHING:
        return lambda chain: None
    spec = _spec_of(name, part)
    if spec is None:
        raise ValueError(
            f"A network has linear layers, batch norms and one of the activations that have a name. Got {part} instead."
        )
    return lambda chain: chain.activation(spec)


def _spec_of(name: str, part: Any) -> str | None:
    if name == "LeakyReLU":
        return f"leaky_relu({part.negative_slope!r})"
    if name == "Softplus":
        return "softplus" if part.beta == 1 and part.threshold >= 20 else None
    if name == "GELU":
        return "gelu" if part.approximate == "none" else None
    if name == "ELU":
        return "elu" if part.alpha == 1 else None
    return _ACTIVATIONS.get(name)


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
