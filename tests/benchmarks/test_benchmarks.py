"""Every benchmark is registered under one name, and its saved table can be drawn again."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from benchmarks import MODULES, benchmarks, problems
from benchmarks.resources.process import in_own_process
from neurecover.experiment import Experiment, read_rows
from neurecover.reproduce import reproductions

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def test_every_module_with_experiments_is_registered() -> None:
    folder = ROOT / "benchmarks"
    with_experiments = {
        ".".join(file.relative_to(folder).with_suffix("").parts)
        for file in folder.rglob("*.py")
        if "\nEXPERIMENTS = " in file.read_text(encoding="utf-8")
    }
    assert with_experiments == set(MODULES)


def test_every_saved_table_has_one_experiment() -> None:
    assert not set(benchmarks()) & set(reproductions())
    assert {file.stem for file in RESULTS.glob("*.csv")} <= set(benchmarks()) | set(reproductions())


@pytest.mark.parametrize("name", ["noise", "peers"])
def test_a_picture_is_drawn_from_the_saved_table(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shutil.copy(RESULTS / f"{name}.csv", tmp_path)
    (path,) = benchmarks()[name].redraw(tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")


def figures(a: float, b: str) -> dict:
    return {"sum": a + len(b)}


def fails() -> dict:
    raise KeyError("the reason")


def test_figures_of_another_process_come_back_and_so_does_its_error() -> None:
    assert in_own_process(figures, 1.5, "ab") == {"sum": 3.5}
    with pytest.raises(RuntimeError, match="the reason"):
        in_own_process(fails)


@pytest.mark.parametrize("family", problems.FAMILIES)
def test_problems_are_drawn_again_alike_and_every_unit_switches(family: str) -> None:
    row = problems.ROWS["10-8-6-1 25x"]
    one, other = problems.draw(row, family, 3), problems.draw(row, family, 3)
    assert (one.X == other.X).all()
    assert (one.Y == other.Y).all()
    W, b = one.layers[0]
    on = (one.X @ W.T + b > 0.0).mean(axis=0)
    assert on.min() >= problems.SEEN
    assert on.max() <= 1.0 - problems.SEEN


def test_a_run_that_was_cut_off_goes_on_where_it_ended(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure(number: int, ends: bool) -> dict[str, object]:
        if ends:
            raise KeyboardInterrupt
        measured.append(number)
        return {"number": number}

    for ends in (True, False):
        rows = [partial(measure, number, ends and number == 2) for number in range(4)]
        experiment = Experiment("cut-off", "Rows one by one", lambda track, rows=rows: rows)
        with suppress(KeyboardInterrupt):
            experiment.save(tmp_path, lambda items, label: items)
    assert measured == [0, 1, 2, 3]
    assert read_rows(tmp_path / "cut-off.csv") == [{"number": str(number)} for number in range(4)]
    assert not (tmp_path / "cut-off.part.csv").exists()
