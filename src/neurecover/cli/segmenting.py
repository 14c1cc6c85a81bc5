"""The command for piecewise linear regression: segmented."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli import machine
from neurecover.cli.app import OK, STATUS, app
from neurecover.cli.options import (
    LOSSES,
    Drop,
    DropNa,
    Json,
    Loss,
    Seed,
    Weight,
    check_choice,
    check_target,
    open_samples,
)
from neurecover.cli.wording import as_options
from neurecover.terminal import say

if TYPE_CHECKING:
    import numpy as np


@app.command()
def segmented(
    samples: Annotated[
        list[Path],
        typer.Argument(help="A .csv, .tsv, .parquet, .npz or .npy file, or -, standard input."),
    ],
    x: Annotated[
        str | None, typer.Option("--x", "--inputs", help="The column of the input, or several: x1,x2.")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", "--outputs", help="The output's column, if it is not named y.")
    ] = None,
    hinges: Annotated[int | None, typer.Option(min=0, help="Number of breaks; found if not given.")] = None,
    weight: Weight = None,
    drop: Drop = None,
    dropna: DropNa = False,
    loss: Loss = "squared",
    family: Annotated[
        str, typer.Option(help="normal, binomial (shares, weights say of how many) or poisson (counts).")
    ] = "normal",
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    intervals: Annotated[str, typer.Option(help="posterior, profile or wald.")] = "posterior",
    folds: Annotated[
        int,
        typer.Option(
            min=0, help="Choose the number of breaks by cross-validation in so many parts; 0 for the posterior."
        ),
    ] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The .npz file for the network.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Fit a line with breaks, with intervals.

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed.

    \b
    Examples:
      neurecover segmented data.csv --x dose --y response
      neurecover segmented data.csv --x dose --y response --hinges 1 --loss tukey --json
    """
    check_choice("--loss", loss, LOSSES)
    check_choice("--family", family, ("normal", "binomial", "poisson"))
    check_choice("--intervals", intervals, ("posterior", "profile", "wald"))
    if not 0.0 < level < 1.0:
        raise ValueError(f"--level needs a number between 0 and 1, as 0.95. Got {level:g} instead.")
    if folds == 1:
        raise ValueError("--folds needs at least 2 parts, or 0 for no cross-validation. Got 1 instead.")
    if out is not None:
        check_target(out, others=samples)
    source = open_samples(samples, x, y, weight, drop=drop, dropna=dropna)
    if source.n_outputs != 1:
        raise ValueError(f"segmented needs one output. Got {source.n_outputs} instead: name it with --y.")
    X, Y = source.collect()
    model = nr.HingeRegression(hinges, loss=loss, family=family, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the verdict's reasons say the same
        model.fit(_named(X, source.input_names), Y[:, 0], sample_weight=source.weights())
    if out is not None:
        (model.network_ if model.recovery_ is None else model.recovery_).save(out)
    certificate = model.certificate_
    verdict = None if certificate is None else certificate.verdict
    if json:
        facts = {"inputs": source.input_names, "output": source.output_names[0], "n_hinges": model.n_hinges_}
        facts |= {"assumed": source.base.assumed}
        table = [dataclasses.asdict(line) for line in model.estimates(level, intervals)]
        facts |= {"cross_validated": list(model.cross_validate(folds=folds))} if folds else {}
        facts |= {"estimates": table, "level": level, "intervals": intervals, "verdict": verdict}
        facts |= {"reasons": () if certificate is None else certificate.reasons, "file": out}
        machine.answer(facts)
    else:
        if source.base.assumed:
            say(as_options(source.base.assumed))
        say(f"{source.output_names[0]} by {', '.join(source.input_names)}")
        terminal.out.print(as_options(model.summary(level, intervals, folds)), markup=False, highlight=False)
        if out is not None:
            say(f"Wrote the network to {out}.")
    raise typer.Exit(OK if verdict is None else STATUS[verdict])


def _named(X: np.ndarray, names: tuple[str, ...]) -> Any:
    """Return the inputs as a data frame, so that the estimator keeps their names; unchanged without pandas."""
    try:
        import pandas as pd
    except ImportError:
        return X
    return pd.DataFrame(X, columns=list(names))
