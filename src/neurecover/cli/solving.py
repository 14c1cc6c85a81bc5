"""The commands that find a network: demo, recover, extract, estimate."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli import machine
from neurecover.cli.app import FAILED, INTERRUPTED, OK, STATUS, app, best_so_far
from neurecover.cli.options import (
    Activation,
    ActivationOrAuto,
    Affine,
    Drop,
    DropNa,
    Inputs,
    Json,
    Loss,
    Method,
    NoBias,
    OneHot,
    Outputs,
    OwnMethod,
    Samples,
    Seed,
    TimeBudget,
    Verbose,
    Weight,
    Widths,
    check_exists,
    check_target,
    load_network,
    open_samples,
    parse_affine,
    parse_widths,
)
from neurecover.cli.wording import as_options
from neurecover.terminal import say

if TYPE_CHECKING:
    import numpy as np

    from neurecover.models import Model

Out = Annotated[Path | None, typer.Option("--out", "-o", help="The .npz file for the network and its certificate.")]


@app.command()
def demo() -> None:
    """Hide a network, recover it from samples and compare the two.

    Takes seconds and writes nothing. Exit status 0 if every weight is found to 1e-10.

    \b
    Example:
      neurecover demo
    """
    truth = nr.simulate.teacher(10, 5, random_state=0)
    X, Y = nr.simulate.sample(truth, 2_000, random_state=0)
    say(f"A relu network of {truth.n_inputs} inputs is hidden, its number of units too. From {len(X):,} samples:\n")
    recovery = nr.recover(X, Y, random_state=0, progress=terminal.err.is_terminal)
    terminal.out.print(terminal.recovery_panel(recovery))
    comparison = nr.compare(recovery.network, truth)
    say("\nThe hidden network beside the one found; a is a unit's output weight, b its bias, scaled to ‖w‖ = 1:")
    terminal.out.print(terminal.units_table(recovery.network, truth, comparison))
    agrees = comparison.weight_error <= 1e-10 and comparison.unmatched == ((), ())
    say(
        f"The largest error of a weight vector is {comparison.weight_error:.1e}, of a bias {comparison.bias_error:.1e}."
    )
    raise typer.Exit(STATUS[recovery.certificate.verdict] if agrees else FAILED)


@app.command()
def recover(
    samples: Samples,
    hidden: Widths = None,
    out: Out = None,
    depth: Annotated[int, typer.Option(min=1, help="The number of hidden layers, if --hidden does not give it.")] = 1,
    inputs: Inputs = None,
    outputs: Outputs = None,
    weight: Weight = None,
    drop: Drop = None,
    dropna: DropNa = False,
    one_hot: OneHot = False,
    method: Method = "auto",
    activation: ActivationOrAuto = "relu",
    no_bias: NoBias = False,
    affine: Affine = "no",
    loss: Loss = "squared",
    seed: Seed = 0,
    time_budget: TimeBudget = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A folder for the state of the run: an interrupted run continues from it.")
    ] = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Recover a network from samples, with a certificate.

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed. With --out the
    network is saved whatever the verdict. Ctrl-C ends the search with the best network so far (status 130).

    \b
    Examples:
      neurecover recover samples.npz --out net.npz
      neurecover recover table.csv --outputs y --hidden 4
      neurecover recover - --outputs y --dropna < table.csv
      neurecover recover counted.csv --outputs y --weight w --hidden 4
      neurecover recover samples.npz --hidden 4 --time-budget 60 --json
      neurecover recover samples.npz --hidden 4 --affine auto
      neurecover recover table.csv --outputs y --loss tukey --dropna
      neurecover recover samples.npz --hidden 4 --checkpoint records
    """
    if out is not None:
        check_target(out, others=samples)
    # With a checkpoint the whole state is saved, so Ctrl-C ends the run at once.
    stopping = nullcontext(threading.Event()) if checkpoint is not None else best_so_far()
    with machine.libraries_to_stderr(), stopping as stopped:
        recovery = nr.recover(
            open_samples(samples, inputs, outputs, weight, drop=drop, dropna=dropna, one_hot=one_hot),
            n_hidden=parse_widths(hidden),
            method=method,
            activation=activation,
            bias=not no_bias,
            affine=parse_affine(affine),
            loss=loss,
            depth=depth,
            random_state=seed,
            time_budget=time_budget,
            progress=terminal.err.is_terminal,
            checkpoint=checkpoint,
        )
    show(recovery, out, json, verbose, stopped.is_set())


@app.command()
def extract(
    model: Annotated[
        Path | None, typer.Argument(help="An .onnx file or a saved network to query, in place of --command or --url.")
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="A program that reads rows of inputs and prints rows of outputs.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="An address that takes rows of inputs as JSON, of a model you own or may test.")
    ] = None,
    inputs: Annotated[
        int | None, typer.Option(min=1, help="How many inputs a row has, for --command and --url.")
    ] = None,
    form: Annotated[
        str, typer.Option(help="With --url: the JSON fields of request and answer, as in features,prediction.")
    ] = "inputs,outputs",
    one_row: Annotated[bool, typer.Option("--one-row", help="With --url: a call takes one row, not a list.")] = False,
    header: Annotated[
        list[str] | None, typer.Option(help="With --url: 'Name: value'; ${NAME} is taken from the environment.")
    ] = None,
    per_second: Annotated[float | None, typer.Option(help="The largest number of queries per second.")] = None,
    in_flight: Annotated[int, typer.Option(min=1, help="With --url: how many calls are made at the same time.")] = 4,
    timeout: Annotated[float, typer.Option(help="With --url: seconds that a call may take.")] = 30.0,
    hidden: Widths = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Hidden layers; found if not given.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="The largest number of queries.")] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Wanted error of the weights in one hidden layer; a smaller one takes more queries."),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows per call of the model.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="A file for the answers: an interrupted run continues from it.")
    ] = None,
    like: Annotated[Path | None, typer.Option(help="A file of samples; queries are made around its inputs.")] = None,
    bounds: Annotated[str | None, typer.Option(help="LOW,HIGH: no query leaves this range.")] = None,
    logits: Annotated[
        bool, typer.Option("--logits", help="Take the logits of answers that are probabilities.")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Recover from this many random queries, for units without kinks.")
    ] = None,
    price: Annotated[float | None, typer.Option(help="The price of one query, for the total in the report.")] = None,
    out: Out = None,
    activation: Annotated[str, typer.Option(help="auto, or the hidden units' function: relu, tanh, …")] = "auto",
    seed: Seed = 0,
    time_budget: TimeBudget = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Extract a network by queries, with a certificate.

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed.

    \b
    Examples:
      neurecover extract truth.npz --out net.npz
      neurecover extract model.onnx --like table.csv --out net.npz
      neurecover extract model.onnx --bounds -3,3 --samples 3000 --activation relu
      neurecover extract --command "python model.py" --inputs 10 --keep answers.bin --out net.npz
      neurecover extract --url http://localhost:8000/predict --inputs 10 --keep answers.bin --time-budget 60
      neurecover extract --url https://… --inputs 10 --header 'Authorization: Bearer ${TOKEN}' --per-second 50
    """
    from neurecover.data import CommandModel
    from neurecover.data.oracles.libraries import as_function

    if sum(way is not None for way in (command, model, url)) != 1:
        raise ValueError(
            "extract needs one model to query: the file of a network, --command with a program, or --url with an "
            "address."
        )
    for name, given in (
        ("--header", header),
        ("--form", form != "inputs,outputs"),
        ("--one-row", one_row),
        ("--timeout", timeout != 30.0),
    ):
        if given and url is None:
            raise ValueError(f"{name} goes with --url. Leave it out, or give --url.")
    if out is not None:
        check_target(out, others=[] if model is None else [model])
    if model is None and inputs is None and like is None:
        raise ValueError(f"{'--command' if url is None else '--url'} needs --inputs, the number of inputs per row.")
    if model is not None:
        check_exists(model)
    queried: Any = _read_model(model) if model is not None else CommandModel(command) if command is not None else None
    wide = inputs or (None if queried is None else as_function(queried, None).n_inputs)
    asked: dict[str, Any] = {
        "output": "logit" if logits else None,
        "like": None if like is None else _read_inputs(like, wide),
        "bounds": None if bounds is None else _parse_bounds(bounds),
        "keep": keep,
        "queries_per_second": per_second,
        "random_state": seed,
    }
    if url is not None:
        asked |= {
            "form": form,
            "one_row": one_row,
            "headers": _parse_headers(header or []),
            "timeout": timeout,
            "in_flight": in_flight,
        }
        oracle = nr.endpoint(url, inputs, batch=batch or 100, **asked)
    else:
        oracle = nr.oracle(queried, inputs, batch=batch, **asked)
    if samples is not None and budget is not None:
        raise ValueError("--samples is the number of queries, and --budget the largest number. Give one of them.")
    shared: dict[str, Any] = {
        "n_hidden": parse_widths(hidden),
        "activation": activation,
        "random_state": seed,
        "time_budget": time_budget,
        "progress": terminal.err.is_terminal,
    }
    if samples is None:
        try:
            recovery = nr.extract(oracle, depth=depth, query_budget=budget, accuracy=accuracy, price=price, **shared)
        except KeyboardInterrupt as stop:
            terminal.err.print(as_options(" ".join(stop.__notes__)), soft_wrap=True, highlight=False)
            raise
    else:
        recovery = nr.recover(oracle, n_samples=samples, depth=depth or 1, **shared)
    show(recovery, out, json, verbose)


@app.command()
def estimate(
    samples: Samples,
    method: OwnMethod = "hermite",
    form: Annotated[str, typer.Option(help="best, paper (as printed), or practice (symmetric).")] = "best",
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units; found if not given.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The .npz file for the network.")] = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    activation: Activation = "relu",
    no_bias: NoBias = False,
    seed: Seed = 0,
    time_budget: TimeBudget = None,
    json: Json = False,
) -> None:
    """Show an algorithm's own estimate, before any refinement.

    Exit status: 0 if it found a network, 4 if not. Nothing is certified: for that, `neurecover recover --method`.

    \b
    Examples:
      neurecover estimate samples.npz --method hermite --hidden 4
      neurecover estimate samples.npz --method hermite --form paper --hidden 4 --out rough.npz
    """
    if out is not None:
        check_target(out, others=samples)
    found = nr.estimate(
        open_samples(samples, inputs, outputs),
        n_hidden=hidden,
        method=method,
        form=form,
        activation=activation,
        bias=not no_bias,
        random_state=seed,
        time_budget=time_budget,
        progress=terminal.err.is_terminal,
    )
    written = out if found.network is not None else None
    if written is not None and found.network is not None:
        found.network.save(written)
    if json:
        facts = {name: getattr(found, name) for name in ("method", "form", "seconds", "notes")}
        machine.answer(facts | {"network": machine.network_facts(found.network), "file": written})
    else:
        terminal.out.print(terminal.summary_grid([(label, as_options(text)) for label, text in found.rows()]))
        if written is not None:
            say(f"Wrote the network to {written}.")
    raise typer.Exit(OK if found.network is not None else FAILED)


def _read_model(path: Path) -> Any:
    """Return the model to query: a saved network, or the path of an ONNX file, which runs in its own precision."""
    return path if path.suffix.lower() == ".onnx" else load_network(path)


def _read_inputs(path: Path, n_inputs: int | None) -> np.ndarray:
    """Return the inputs in a file of samples; all columns are inputs if the model has as many."""
    import numpy as np

    if path.suffix.lower() != ".npz":  # a table, perhaps of inputs alone
        columns = np.hstack(open_samples([path], outputs="-1").collect())
        if columns.shape[1] == n_inputs:
            return columns
    X, Y = open_samples([path]).collect()
    return np.hstack([X, Y]) if X.shape[1] + Y.shape[1] == n_inputs else X


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"--header needs a name, a colon and a value. Got {name!r} without one instead.")
        headers[name.strip()] = value.strip()
    return headers


def _parse_bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"--bounds needs two numbers, as in -1,1. Got {text!r} instead.") from None
    return low, high


def show(
    recovery: nr.Recovery[Model], out: Path | None, json: bool, verbose: bool = False, interrupted: bool = False
) -> NoReturn:
    """Show the summary, save the network and its certificate, and exit with the status of the verdict."""
    if out is not None:
        recovery.save(out)
    if json:
        machine.answer(machine.recovery_facts(recovery, out))
    else:
        terminal.out.print(terminal.recovery_panel(recovery, as_options, verbose))
        if out is not None:
            say(f"Wrote the network and its certificate to {out}.")
        else:
            say("For the weights add --out net.npz, and then `neurecover report net.npz`, or --json.")
    raise typer.Exit(INTERRUPTED if interrupted else STATUS[recovery.certificate.verdict])
