"""Models of other libraries as functions X (n, d) → Y (n, p) that can be queried.

A classifier is queried for its logits, because a network computes these: log p/(1 − p) for two classes, and the
log-ratios log p_j/p_1 to the first class for more classes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurecover.data.oracles.frame import Frame
from neurecover.exceptions import UnsolvableError
from neurecover.models import load
from neurecover.models.formats import libraries
from neurecover.models.formats.onnx_files import read_onnx

_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")
_SUM = 1e-4  # probabilities add up to one within this, in single precision too


@dataclass(frozen=True)
class ModelFunction:
    """How to query a model: `ask` takes arrays (n, d); `single` says that the model computes in single precision.

    `logits` says that the answers are probabilities whose logits are wanted. n_inputs is d, and `frame` describes the
    region of the model's inputs; both are None if the model does not tell.
    """

    ask: Callable[[np.ndarray], Any]
    n_inputs: int | None = None
    single: bool = False
    logits: bool = False
    frame: Frame | None = None


def as_function(model: Any, output: str | None) -> ModelFunction:
    """Return how to query the model; output="logit" says that it answers with probabilities, and takes their logits."""
    if output not in (None, "logit"):
        raise ValueError(f"output is None, for the answers as they come, or 'logit'. Got {output!r} instead.")
    if isinstance(model, str | os.PathLike):
        model = _from_file(os.fspath(model))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        way = _torch(torch, model)
    elif hasattr(model, "get_inputs") and hasattr(model, "run"):
        way = _onnx_session(model)
    elif hasattr(model, "predict"):
        return _scikit_learn(model, output)
    elif callable(model):
        way = ModelFunction(model, getattr(model, "n_inputs", None))
    else:
        raise TypeError(
            "The model is a callable X -> Y, a scikit-learn estimator, a torch module, an onnxruntime session or the "
            f"path of an .onnx file. Got {type(model).__name__} instead."
        )
    return replace(way, logits=output == "logit")


def logits(P: Any) -> np.ndarray:
    """Return log p/(1 − p) of one column, or log p_j/p_1 for j = 2 … of several that add up to one."""
    P = np.asarray(P)
    P = P.reshape(len(P), -1).astype(np.float64)
    if not np.isfinite(P).all():
        raise UnsolvableError("A probability is no number, so its logit is not known. Ask nearer to the model's data.")
    fits = P.size and P.min() >= 0.0 and P.max() <= 1.0 and (P.shape[1] == 1 or np.ptp(P.sum(axis=1)) <= 2.0 * _SUM)
    if not fits or (P.shape[1] > 1 and abs(P[0].sum() - 1.0) > _SUM):
        raise UnsolvableError("output='logit' takes probabilities in rows that add up to one. Got other numbers.")
    if P.shape[1] == 1:
        P = np.hstack([1.0 - P, P])
    if P.min() <= 0.0:
        raise UnsolvableError(
            "A probability rounds to zero, so its logit is not known. Ask for samples nearer to where the classes are "
            "in doubt: recover(oracle, n_samples=...)."
        )
    L = np.log(P)
    return L[:, 1:] - L[:, :1]


def _from_file(path: str) -> Any:
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".onnx":
        model = read_onnx(path)
        runtime = libraries.onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        try:
            return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has one exception class per status, without a common base
            raise ValueError(f"{path} cannot be run by onnxruntime ({str(error).splitlines()[0]}).") from None
    if suffix == ".npz":
        return load(path)
    if suffix in _PICKLES:
        raise ValueError(f"{path} may run code when it is read. Load it yourself and give the model.")
    raise ValueError(f"{path}: expected an .onnx file, or an .npz file with a saved network. Got {suffix!r} instead.")


def _scikit_learn(model: Any, output: str | None) -> ModelFunction:
    from sklearn.base import is_classifier

    method = "predict"
    if output == "logit" or is_classifier(model):
        method = next((name for name in ("predict_proba", "decision_function") if hasattr(model, name)), "")
        if not method:
            raise ValueError(
                f"{type(model).__name__} answers with labels alone, which show no weights but those of halfspaces: "
                "see neurecover.HalfspaceUnion."
            )
    answer = getattr(model, method)
    names = getattr(model, "feature_names_in_", None)

    def ask(X: np.ndarray) -> np.ndarray:
        if names is not None:
            import pandas as pd

            X = pd.DataFrame(X, columns=names)
        return answer(X)

    known, frame = getattr(model, "n_features_in_", None), _scaler_frame(model)
    return ModelFunction(ask, known, logits=method == "predict_proba", frame=frame)


def _scaler_frame(model: Any) -> Frame | None:
    """Return the frame of the data to which a pipeline's first step, a scaler, was fitted."""
    if not getattr(model, "steps", None):
        return None
    first = model.steps[0][1]
    low, high = getattr(first, "data_min_", None), getattr(first, "data_max_", None)
    centre = getattr(first, "mean_", None) if hasattr(first, "mean_") else getattr(first, "center_", None)
    size = getattr(first, "scale_", None)
    if low is not None and high is not None:
        # The standard deviation of the uniform distribution on the range.
        centre, size = (low + high) / 2.0, (high - low) / np.sqrt(12.0)
    if size is None:
        return None
    return Frame.of_columns(np.zeros(len(size)) if centre is None else centre, np.where(size > 0.0, size, 1.0))


def _torch(torch: Any, module: Any) -> ModelFunction:
    weight = next((value for value in module.parameters() if value.is_floating_point()), None)
    dtype = torch.float32 if weight is None else weight.dtype
    device = "cpu" if weight is None else weight.device
    first = next((part for part in module.modules() if isinstance(part, torch.nn.Linear)), None)

    def ask(X: np.ndarray) -> np.ndarray:
        modes = {part: part.training for part in module.modules()}
        module.eval()
        try:
            with torch.no_grad():
                Y = module(torch.from_numpy(X).to(device=device, dtype=dtype))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"The torch module cannot be asked rows of {X.shape[1]} inputs: {reason}.") from None
        finally:
            for part, training in modes.items():
                part.training = training
        if not isinstance(Y, torch.Tensor):
            raise ValueError(f"The torch module needs to answer with one tensor. Got {type(Y).__name__} instead.")
        return (Y if Y.dtype == torch.float64 else Y.float()).cpu().numpy()

    return ModelFunction(ask, None if first is None else first.in_features, single=dtype != torch.float64)


def _onnx_session(session: Any) -> ModelFunction:
    kinds = {"tensor(double)": np.float64, "tensor(float)": np.float32}
    inputs = session.get_inputs()
    outputs = [value.name for value in session.get_outputs() if value.type in kinds]
    if len(inputs) != 1 or inputs[0].type not in kinds or len(outputs) != 1:
        raise ValueError(
            "An ONNX model is asked with one input and one output of real numbers. Got inputs "
            f"{', '.join(f'{v.name} {v.type}' for v in inputs)} and outputs "
            f"{', '.join(f'{v.name} {v.type}' for v in session.get_outputs())} instead."
        )
    name, dtype = inputs[0].name, kinds[inputs[0].type]
    batch, *shape = inputs[0].shape
    known = all(isinstance(size, int) for size in shape)

    def ask(X: np.ndarray) -> np.ndarray:
        rows = X.astype(dtype).reshape(len(X), *(shape if known else X.shape[1:]))
        if not isinstance(batch, int):
            return session.run(outputs, {name: rows})[0]
        # A model exported for a fixed batch size is queried in such batches; the last one is padded with its last row.
        padded = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % batch, axis=0)])
        answers = [session.run(outputs, {name: padded[i : i + batch]})[0] for i in range(0, len(padded), batch)]
        return np.concatenate([np.asarray(answer).reshape(batch, -1) for answer in answers])[: len(X)]

    return ModelFunction(ask, int(np.prod(shape)) if known else None, single=dtype == np.float32)
