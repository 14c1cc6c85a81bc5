"""The weights of any network as tables, layer by layer: a row per unit, a column per weight and one for the bias.

An affine term has its own table after that of the output layer: a row per output, a column per input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neurecover.models import Composite, Layered, Model, Polynomial
from neurecover.models.formats.libraries import optional

if TYPE_CHECKING:
    from pandas import DataFrame

    from neurecover.certificate import Certificate
    from neurecover.results import Recovery

INTERVAL = 1.959964  # standard errors to either side of a 95 % interval, Φ⁻¹(0.975)
_UP = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, eq=False)
class LayerTable:
    """The `values` of one layer; `errors` and `determined` have the same shape, or are None if unknown."""

    name: str
    units: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    errors: np.ndarray | None = None
    determined: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray:
        """The columns without the bias."""
        return self.values[:, : len(self.columns) - (self.columns[-1:] == ("bias",))]

    @property
    def hidden(self) -> bool:
        return self.name.startswith("hidden")


def layer_tables(
    model: Model,
    certificate: Certificate | None = None,
    input_names: tuple[str, ...] | None = None,
    output_names: tuple[str, ...] | None = None,
) -> list[LayerTable]:
    """Return a table per layer from the inputs up, then one for C; an upper polynomial has a table of its terms."""
    tables: list[LayerTable] = []
    below = input_names or tuple(f"x{j}" for j in range(model.n_inputs))
    outputs = output_names or tuple(f"y{j}" for j in range(model.n_outputs))
    errors = None if certificate is None else certificate.standard_errors
    determined = None if certificate is None else certificate.determined
    parts = list(_parts(model))
    for number, part in enumerate(parts, start=1):
        above = number == len(parts) and not (isinstance(model, Composite) and number == 1)
        units = outputs if above else tuple(f"unit {j}" for j in range(len(next(iter(part.values())))))
        name = "output" if above else f"hidden {number}"
        columns = _monomials(model) if "coefficients" in part else (*below, "bias")
        values = np.column_stack(list(part.values()))
        tables.append(LayerTable(name, units, columns, values, _beside(errors, part), _beside(determined, part)))
        below = units
    top, prefix = (model.upper, "upper_") if isinstance(model, Composite) else (model, "")
    if isinstance(top, Layered) and top.C is not None:
        columns = tables[1 if prefix else 0].columns[:-1]  # the inputs of `top`
        part = {f"{prefix}C": top.C}
        tables.append(LayerTable("affine", outputs, columns, top.C, _beside(errors, part), _beside(determined, part)))
    return tables


def recovery_tables(recovery: Recovery[Model]) -> list[LayerTable]:
    """Return the tables of a recovered network, with the errors from its certificate."""
    excerpt = recovery.excerpt
    names = (excerpt.input_names, excerpt.output_names) if excerpt is not None else (None, None)
    return layer_tables(recovery.network, recovery.certificate, *names)


def weights_frame(recovery: Recovery[Model]) -> DataFrame:
    """Return a row per weight. If the certificate has no errors, these are nan and the verdict gives `determined`."""
    pd = optional("pandas", "to_frame", "data")
    parts, vouched = [], recovery.certificate.verdict in ("exact", "statistical")
    for table in recovery_tables(recovery):
        k, m = table.values.shape
        errors = np.full((k, m), np.nan) if table.errors is None else table.errors
        parts.append(
            pd.DataFrame(
                {
                    "layer": table.name,
                    "unit": np.repeat(np.arange(k), m),
                    "weight": np.tile(np.array(table.columns, dtype=object), k),
                    "estimate": table.values.ravel(),
                    "standard_error": errors.ravel(),
                    "low": (table.values - INTERVAL * errors).ravel(),
                    "high": (table.values + INTERVAL * errors).ravel(),
                    "determined": vouched if table.determined is None else table.determined.ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _parts(model: Layered | Composite) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of every layer, weights and then bias, by their names in the network's file."""
    if not isinstance(model, Composite):
        names = [name for name in model.arrays if name != "C"]
        yield from ({name: model.arrays[name] for name in pair} for pair in zip(names[::2], names[1::2]))
    else:
        yield {"W": model.W, "threshold": -model.threshold}  # a threshold is a bias with the opposite sign
        if isinstance(model.upper, Layered):
            yield from ({f"upper_{name}": array for name, array in part.items()} for part in _parts(model.upper))
        elif isinstance(model.upper, Polynomial):
            yield {"coefficients": model.upper.coefficients}


def _beside(arrays: Mapping[str, np.ndarray] | None, part: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return a certificate's arrays for a layer, arranged like its values; None if there are none."""
    if arrays is None or any(name not in arrays for name in part):
        return None
    return np.column_stack([arrays[name] for name in part])


def _monomials(model: Model) -> tuple[str, ...]:
    """Return the names h0, h0h1², … of the terms of an upper polynomial."""
    assert isinstance(model, Composite)
    assert isinstance(model.upper, Polynomial)
    return tuple(
        "".join(f"h{j}{str(e).translate(_UP) if e > 1 else ''}" for j, e in enumerate(row) if e) or "1"
        for row in model.upper.exponents
    )
