"""PyTorch modules: read by tracing what `forward` does to x, written as `nn.Sequential`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from neurecover.models.deep import DeepNetwork
from neurecover.models.exchange import libraries
from neurecover.models.exchange.chain import Chain, layers_of
from neurecover.models.network import Network

_ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu", "SELU": "selu"}
_FUNCTIONS = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "silu": "silu", "selu": "selu", "relu_": "relu"}
_NOTHING = {"Flatten", "Identity", "Dropout"}  # on rows of numbers, and when evaluated

_STRAIGHT = 40.0  # beyond it torch's softplus is the identity, right to e^{−40} < 1e-17


def from_torch(module: Any) -> Network | DeepNetwork:
    """Every step of `forward` needs to take the result of the step before it and nothing else."""
    if isinstance(module, str | os.PathLike):
        raise ValueError(
            f"from_torch takes a torch.nn.Module. Got the path {os.fspath(module)} instead: a file of PyTorch may run "
            "code when it is read, so load it yourself, or export the module with torch.onnx.export."
        )
    torch = libraries.torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"from_torch takes a torch.nn.Module. Got {type(module).__name__} instead.")
    chain = Chain(f"the module {type(module).__name__}")
    # A layer that stands by itself would be looked into.
    parts = module if next(module.children(), None) is not None else torch.nn.Sequential(module)
    for step in _steps(torch, parts):
        step(chain)
    return chain.network()


def to_torch(network: Network | DeepNetwork, dtype: str) -> Any:
    torch = libraries.torch()
    kind = {"float64": torch.float64, "float32": torch.float32}.get(dtype)
    if kind is None:
        raise ValueError(f"to_torch writes dtype 'float64' or 'float32'. Got {dtype!r} instead.")
    modules: list[Any] = []
    for W, b in layers_of(network):
        # Empty weights instead of random ones: torch's own generator stays where it is.
        layer = torch.nn.utils.skip_init(torch.nn.Linear, W.shape[1], W.shape[0], dtype=kind)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(W.copy()))
            layer.bias.copy_(torch.from_numpy(b.copy()))
        modules += [layer, _activation_module(torch.nn, network)]
    return torch.nn.Sequential(*modules[:-1])


def _activation_module(nn: Any, network: Network | DeepNetwork) -> Any:
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


def _steps(torch: Any, module: Any) -> list[Callable[[Chain], None]]:
    """What forward does, one step after the other."""
    name = type(module).__name__
    known = "linear layers, batch norms and activations in a row"
    try:
        graph = torch.fx.symbolic_trace(module).graph
    except Exception as error:  # forward is any code: what it raises on a stand-in for x is any kind of error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"The module {name} cannot be followed as {known} ({reason}).") from None
    steps: list[Callable[[Chain], None]] = []
    last = None
    for node in graph.nodes:
        if node.op == "placeholder" and last is not None:
            raise ValueError(f"The module {name} takes several inputs. Only one, of rows of numbers, can be read.")
        if node.op not in ("placeholder", "output"):
            if node.all_input_nodes != [last]:
                raise ValueError(f"The module {name} is not {known}: {node.name} takes other values as well.")
            steps.append(_step(torch, module, node))
        if node.op == "output" and node.args[0] is not last:
            raise ValueError(f"The module {name} does not answer with the result of its last step.")
        last = node
    return steps


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
