"""The methods that convert networks from and to other libraries; a library is imported when it is needed."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurecover.models.deep import DeepNetwork
    from neurecover.models.network import Network


class Exchanged:
    """Conversions of a `Network` or a `DeepNetwork`. Reading returns a `Network` for one hidden layer."""

    @staticmethod
    def from_torch(module: Any) -> Network | DeepNetwork:
        """Read the network that a `torch.nn.Module` computes: linear layers, batch norms and one activation, in a row.

        Parameters
        ----------
        module : torch.nn.Module
            The module. A linear map of the inputs may be added to the outputs: the affine term.

        Returns
        -------
        Network or DeepNetwork
            A `Network` for one hidden layer.

        Examples
        --------
        >>> import neurecover as nr
        >>> net = nr.Network.from_torch(module)  # doctest: +SKIP
        """
        from neurecover.models.formats.pytorch import from_torch

        return from_torch(module)

    @staticmethod
    def from_onnx(path: str | PathLike[str]) -> Network | DeepNetwork:
        """Read the network in an ONNX file: a chain of Gemm, MatMul, Add and one activation, plus an affine term.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Network or DeepNetwork
            A `Network` for one hidden layer.

        Examples
        --------
        >>> import neurecover as nr
        >>> net = nr.Network.from_onnx("model.onnx")  # doctest: +SKIP
        """
        from neurecover.models.formats.onnx_graph import from_onnx

        return from_onnx(path)

    @staticmethod
    def from_sklearn(estimator: Any) -> Network | DeepNetwork:
        """Read the network of a fitted `MLPRegressor` or `MLPClassifier`, or of a pipeline of scalers and one of them.

        Parameters
        ----------
        estimator : estimator or pipeline of scikit-learn
            A classifier gives its logits: log-ratios of the probabilities to that of the first class.

        Returns
        -------
        Network or DeepNetwork
            A `Network` for one hidden layer.

        Examples
        --------
        >>> import neurecover as nr
        >>> model = nr.Network([[1.0, 2.0]], None, [[3.0]]).to_sklearn()
        >>> nr.Network.from_sklearn(model).A
        array([[3.]])
        """
        from neurecover.models.formats.scikit_learn import from_sklearn

        return from_sklearn(estimator)

    def to_torch(self, dtype: str = "float64") -> Any:
        """Return a torch module of the same function.

        Parameters
        ----------
        dtype : {"float64", "float32"}, default="float64"
            The precision of its weights.

        Returns
        -------
        torch.nn.Module
            A `Sequential`, or a module around one if there is an affine term.

        Examples
        --------
        >>> net.to_torch("float32")  # doctest: +SKIP
        """
        from neurecover.models.formats.pytorch import to_torch

        return to_torch(self, dtype)  # type: ignore[arg-type]

    def to_onnx(self, path: str | PathLike[str], dtype: str = "float64") -> None:
        """Write an ONNX file (opset 21, IR version 10) of the same function.

        Parameters
        ----------
        path : path
            The file to write.
        dtype : {"float64", "float32"}, default="float64"
            The precision of its weights, inputs and outputs.

        Examples
        --------
        >>> net.to_onnx("net.onnx")  # doctest: +SKIP
        """
        from neurecover.models.formats.onnx_files import to_onnx

        to_onnx(self, path, dtype)  # type: ignore[arg-type]

    def to_sklearn(self) -> Any:
        """Return a fitted regressor of scikit-learn that predicts the same; an affine term is refused.

        Returns
        -------
        sklearn.neural_network.MLPRegressor
            The regressor.

        Examples
        --------
        >>> import neurecover as nr
        >>> nr.Network([[1.0, 2.0]], None, [[3.0]]).to_sklearn().predict([[1.0, 1.0]])
        array([9.])
        """
        from neurecover.models.formats.scikit_learn import to_sklearn

        return to_sklearn(self)  # type: ignore[arg-type]
