"""Options that several commands share, and functions to read them: columns, widths, files to read and to write."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import neurecover as nr
from neurecover.cli.tables import read_table
from neurecover.exceptions import did_you_mean

if TYPE_CHECKING:
    from neurecover.data import Source


def among(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function for shell completion that lists the known words with a given beginning."""
    return lambda incomplete: [word for word in known() if word.startswith(incomplete)]


AFFINE: dict[str, bool | str] = {"yes": True, "no": False, "auto": "auto"}
LOSSES = ("squared", "huber", "tukey")
Samples = Annotated[
    list[Path],
    typer.Argument(
        help="An .npz, .npy, .csv, .tsv, .parquet or .zarr file, a folder of Parquet, X.npy Y.npy, or - for a table in "
        "CSV from standard input."
    ),
]
Inputs = Annotated[str | None, typer.Option(help="Input columns of a table, as names or positions: x1,x2 or 0,1.")]
Outputs = Annotated[str | None, typer.Option(help="Output columns of a table, if they are not named y, y0, y_1, ….")]
Weight = Annotated[
    str | None,
    typer.Option(
        help="The weights of the rows: a column of a table, a member of an .npz, a third .npy beside X.npy Y.npy."
    ),
]
Widths = Annotated[str | None, typer.Option(help="Hidden units, or one number per layer: 20,10; found if not given.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
Activation = Annotated[str, typer.Option(help="The hidden units' function: relu, leaky_relu(0.1), tanh, softplus, …")]
Method = Annotated[
    str,
    typer.Option(
        help="auto, or a name from `neurecover methods`.",
        autocompletion=among(lambda: ["auto", *(method.name for method in nr.methods())]),
    ),
]
OwnMethod = Annotated[
    str,
    typer.Option(
        help="A name from `neurecover methods`, except least_squares, which only refines others.",
        autocompletion=among(lambda: [method.name for method in nr.methods() if method.run is not None]),
    ),
]
ActivationOrAuto = Annotated[
    str, typer.Option(help="auto, or the hidden units' function: relu, leaky_relu(0.1), tanh, softplus, …")
]
TimeBudget = Annotated[float | None, typer.Option(help="Seconds after which no new work is started.")]
NoBias = Annotated[bool, typer.Option("--no-bias", help="Fix all biases and the offset at zero.")]
Affine = Annotated[
    str,
    typer.Option(
        help="Add a linear term C x to the hidden units: yes, no, or auto, if the samples need one.",
        autocompletion=among(lambda: AFFINE),
    ),
]
Loss = Annotated[
    str,
    typer.Option(
        help="squared; huber and tukey limit the influence of outliers.", autocompletion=among(lambda: LOSSES)
    ),
]
Drop = Annotated[str | None, typer.Option(help="Columns of a table to leave out, by name: id,date.")]
DropNa = Annotated[bool, typer.Option("--dropna", help="Leave out rows of a table that lack a value.")]
OneHot = Annotated[
    bool, typer.Option("--one-hot", help="Turn text into columns of 0 and 1, one per value except the first.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every reason and the stages of the run.")]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON object on standard output.")]


def parse_affine(text: str) -> bool | str:
    """Return whether there is a linear term, or "auto"."""
    if text not in AFFINE:
        raise ValueError(f"--affine needs to be yes, no or auto. Got {text!r} instead.{did_you_mean(text, AFFINE)}")
    return AFFINE[text]


def open_samples(
    samples: list[Path],
    inputs: str | None = None,
    outputs: str | None = None,
    weight: str | None = None,
    *,
    drop: str | None = None,
    dropna: bool = False,
    one_hot: bool = False,
) -> Source:
    """Open the samples of a file, a pair of files, or a table on standard input."""
    standard = str(samples[0]) == "-"
    for path in samples if len(samples) <= 2 and not standard else ():
        check_exists(path)
    where: Any = samples[0] if len(samples) == 1 else tuple(samples)
    dropped = _columns(drop)
    if standard or one_hot:
        if len(samples) > 1:
            raise ValueError(f"Expected one table. Got {', '.join(map(str, samples))} instead.")
        where = read_table(samples[0], one_hot, dropped or [])
    try:
        return nr.open(
            where,
            inputs=_columns(inputs),
            outputs=_columns(outputs),
            drop=dropped,
            weight=_column(weight),
            missing="drop" if dropna else "refuse",
        )
    except ValueError as error:
        if re.search(r"expected members X and Y\. Got .*\bactivation\b", str(error)):
            raise ValueError(
                f"{samples[0]} holds a network, and samples are needed here: a file with X and Y."
            ) from None
        raise


def load_network(path: Path) -> nr.Network | nr.DeepNetwork | nr.Composite:
    """Load the network in a file; raise a ValueError with an explanation if the file holds samples instead."""
    check_exists(path)
    try:
        return nr.load(path)
    except ValueError as error:
        if re.search(r"It holds X, Y\.", str(error)):
            raise ValueError(f"{path} holds samples, and a network is needed here.") from None
        raise


def parse_widths(text: str | None, option: str = "--hidden") -> int | tuple[int, ...] | None:
    """Return one number, or one per hidden layer."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) >= 1 for word in words):
        raise ValueError(f"{option} needs whole numbers from 1, as in 20 or 20,10. Got {text!r} instead.")
    return int(words[0]) if len(words) == 1 else tuple(map(int, words))


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError if the value is not among the choices."""
    if value not in choices:
        hint = did_you_mean(value, choices)
        raise ValueError(f"{option} is {', '.join(choices[:-1])} or {choices[-1]}. Got {value!r} instead.{hint}")


def check_exists(path: Path) -> None:
    """Raise FileNotFoundError if the file does not exist, and suggest a file with a similar name."""
    if not path.exists():
        beside = {other.stem: str(other) for other in path.parent.iterdir()} if path.parent.is_dir() else {}
        near = get_close_matches(path.stem, beside, n=1)
        hint = f" Did you mean {beside[near[0]]!r}?" if near else ""
        raise FileNotFoundError(f"There is no file {path}.{hint}")


def check_target(path: Path, suffix: str = ".npz", others: list[Path] | None = None) -> None:
    """Raise ValueError, before any work, for a file that cannot be written or that is one of the inputs."""
    if path.suffix.lower() != suffix:
        got = repr(path.suffix) if path.suffix else "no suffix"
        raise ValueError(f"{path}: expected a file name that ends in {suffix}. Got {got} instead.")
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write. Got a directory instead.")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write to.")
    check_folder(path.parent)
    if path.resolve() in {other.resolve() for other in others or []}:
        raise ValueError(f"{path}: writing there would overwrite the samples. Choose another name.")


def check_folder(folder: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{folder}: nothing can be written there ({error.strerror}).") from None


def check_memory(numbers: int, what: str) -> None:
    """Raise ValueError if this many numbers exceed the free memory, before the system kills the program."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**63
    if 8 * numbers > free:
        raise ValueError(f"{what} would take {8 * numbers / 2**30:,.0f} GB of memory. Choose smaller sizes.")


def _column(text: str | None) -> str | int | None:
    columns = _columns(text)
    if columns is not None and len(columns) != 1:
        raise ValueError(f"--weight needs the name or position of one column. Got {text!r} instead.")
    return columns[0] if columns else None


def _columns(text: str | None) -> list[str | int] | None:
    """Return names and positions; whole numbers are positions, negative ones counted from the end."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [int(word) if re.fullmatch(r"-?\d+", word) else word for word in words]
