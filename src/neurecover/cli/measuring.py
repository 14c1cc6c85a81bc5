"""The commands that measure: bench and reproduce."""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli.app import BAD_INPUT, OK, app
from neurecover.cli.options import among, check_folder
from neurecover.terminal import complain, say

if TYPE_CHECKING:
    from neurecover.experiment import Experiment

SHOWN_ROWS = 40  # of a table; a longer one is in its file


def _benchmarks() -> "dict[str, Experiment]":
    """Return the benchmarks of the checkout that contains the package, or else of that in the current folder."""
    for folder in (Path(nr.__file__).parents[2], Path.cwd()):
        if (folder / "benchmarks" / "__init__.py").is_file() and (folder / "src" / "neurecover").is_dir():
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            return import_module("benchmarks").benchmarks()
    raise ValueError(
        "The benchmarks are not installed: expected the folder benchmarks/ of a checkout of neurecover, and none is in "
        f"{Path.cwd()}; clone the repository and run the command there."
    )


def _reproductions() -> "dict[str, Experiment]":
    from neurecover.reproduce import reproductions

    return reproductions()


def _names(experiments: "Callable[[], dict[str, Experiment]]") -> list[str]:
    """Return the names for shell completion; none if the benchmarks are missing."""
    with suppress(ValueError):
        return [*experiments(), "all"]
    return []


Folder = Annotated[Path, typer.Option("--out", "-o", help="The folder for the tables and pictures.")]
Benchmark = Annotated[
    str | None,
    typer.Argument(
        help="A benchmark, or all; without a name they are listed.",
        autocompletion=among(lambda: _names(_benchmarks)),
    ),
]
Figure = Annotated[
    str | None,
    typer.Argument(
        help="A figure, or all; without a name they are listed.",
        autocompletion=among(lambda: _names(_reproductions)),
    ),
]


@app.command()
def bench(name: Benchmark = None, out: Folder = Path("results")) -> None:
    """Run a benchmark (needs a clone of the repository).

    \b
    Examples:
      neurecover bench
      neurecover bench finisher --out results
    """
    run_experiments("benchmark", _benchmarks(), name, out)


@app.command()
def reproduce(name: Figure = None, out: Folder = Path("results")) -> None:
    """Reproduce a figure or statement of a paper.

    \b
    Examples:
      neurecover reproduce
      neurecover reproduce gklw19-fig2 --out results
    """
    run_experiments("figure", _reproductions(), name, out)


def run_experiments(what: str, known: "dict[str, Experiment]", name: str | None, folder: Path) -> None:
    """Run the experiment of this name, or all of them; without a name, list them."""
    from neurecover.experiment import read_rows

    if name is None:
        terminal.out.print(terminal.experiments_table(known))
        return
    if name != "all" and name not in known:
        from neurecover.exceptions import did_you_mean

        hint = did_you_mean(name, known)
        raise ValueError(f"There is no {what} {name!r}.{hint} Known are {', '.join([*known, 'all'])}.")
    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)
    status = OK
    for experiment in known.values() if name == "all" else [known[name]]:
        try:
            with terminal.tracking() as track:
                paths = experiment.save(folder, track)
        except ImportError as error:
            complain(f"{experiment.name}: {error}")
            status = BAD_INPUT
            continue
        say(f"{experiment.name}: {experiment.title}")
        rows = read_rows(paths[0])
        if len(rows) <= SHOWN_ROWS:
            terminal.out.print(terminal.rows_table(rows))
        say(f"Wrote {', '.join(map(str, paths))}.\n")
    raise typer.Exit(status)
