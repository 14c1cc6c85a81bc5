"""The papers' experiments: registered, drawn from their saved tables, and judged by the papers' own errors."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neurecover.reproduce import MODULES, reproductions
from neurecover.reproduce.gklw19 import orthonormal, paper_errors

ROOT = Path(__file__).parents[2]


def test_every_module_with_experiments_is_registered() -> None:
    files = (ROOT / "src" / "neurecover" / "reproduce").glob("*.py")
    assert {file.stem for file in files if "\nEXPERIMENTS = " in file.read_text(encoding="utf-8")} == set(MODULES)


@pytest.mark.parametrize("name", ["gklw19-fig2", "gklw19-fig3", "gklw19-fig4", "gp18-threshold", "atv21-smoothed"])
def test_a_picture_is_drawn_from_the_saved_table(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shutil.copy(ROOT / "docs" / "results" / f"{name}.csv", tmp_path)
    (path,) = reproductions()[name].redraw(tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_paper_s_errors_ignore_order_and_scale_and_count_a_missing_unit() -> None:
    truth = orthonormal(6, 0)
    X = np.random.default_rng(0).standard_normal((100, 6))
    order = np.array([3, 1, 0, 5, 4, 2])
    same = replace(truth, W=2.0 * truth.W[order], b=truth.b[order], A=0.5 * truth.A[:, order])
    errors = paper_errors(same, truth, X, truth(X))
    assert max(errors.W, errors.A, errors.mse) < 1e-28
    fewer = paper_errors(truth.take(np.arange(5)), truth, X, truth(X))
    assert pytest.approx(1.0) == fewer.W  # the square of the unit row that has no partner
    assert pytest.approx(1.0) == fewer.A
    assert fewer.per_unit == pytest.approx((6**-0.5, 6**-0.5))
