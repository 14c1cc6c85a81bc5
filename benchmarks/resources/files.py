"""Samples of a random network in files, in single precision and with noise, written piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from neurecover.simulate import sample, teacher

NOISE = 0.1  # so that a recovery has to pass over all samples for its error bars
PIECE = 2**16  # rows in memory at a time


def written(case: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """Write the samples of a case (n, d, k, kind: parquet or npy); return its network and the files."""
    n, d = case["n"], case["d"]
    truth = teacher(d, case["k"], random_state=0)
    pieces = [min(PIECE, n - first) for first in range(0, n, PIECE)]
    made = (sample(truth, m, noise=NOISE, random_state=1 + i) for i, m in enumerate(pieces))
    if case["kind"] == "npy":
        X, Y = (
            np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (n, width))
            for name, width in (("X", d), ("Y", 1))
        )
        for i, (x, y) in enumerate(made):
            X[i * PIECE : i * PIECE + len(x)], Y[i * PIECE : i * PIECE + len(x)] = x, y
        return truth, (folder / "X.npy", folder / "Y.npy")
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*(f"x{j}" for j in range(d)), "y"]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(folder / "samples.parquet", schema, use_dictionary=False) as writer:
        for x, y in made:
            writer.write_table(pa.table(list(np.hstack([x, y]).T.astype(np.float32)), schema=schema))
    return truth, folder / "samples.parquet"
