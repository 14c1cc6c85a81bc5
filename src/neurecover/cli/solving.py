"""The commands that find a network: demo, recover, extract, estimate."""

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli import machine
from neurecover.cli.app import FAILED, OK, STATUS, app
from neurecover.cli.options import (
    Activation,
    Inputs,
    Json,
    Method,
    NoBias,
    Outputs,
    Samples,
    Seed,
    TimeBudget,
    Widths,
    check_target,
    check_there,
    loaded,
    opened,
    widths,
)
from neurecover.data import CommandBox
from neurecover.terminal import say

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
    say("\nUnit by unit beside the network that was hidden, a the output weight and b the bias at ‖w‖ = 1:")
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
    depth: Annotated[int, typer.Option(min=1, help="Hidden layers, where --hidden does not say it.")] = 1,
    inputs: Inputs = None,
    outputs: Outputs = None,
    method: Method = "auto",
    activation: Activation = "relu",
    no_bias: NoBias = False,
    seed: Seed = 0,
    time_budget: TimeBudget = None,
    json: Json = False,
) -> None:
    """Recover a network from samples, with a certificate.

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed. The network is written in
    every case.

    \b
    Examples:
      neurecover recover samples.npz --out net.npz
      neurecover recover table.csv --outputs y --hidden 4
      neurecover recover samples.npz --hidden 4 --time-budget 60 --json
    """
    if out is not None:
        check_target(out, others=samples)
    recovery = nr.recover(
        opened(samples, inputs, outputs),
        n_hidden=widths(hidden),
        method=method,
        activation=activation,
        bias=not no_bias,
        depth=depth,
        random_state=seed,
        time_budget=time_budget,
        progress=terminal.err.is_terminal,
    )
    _show(recovery, out, json)


@app.command()
def extract(
    model: Annotated[
        Path | None, typer.Argument(help="An .onnx file or a saved network to be asked, in place of --command.")
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="A program that reads rows of inputs and prints rows of outputs.")
    ] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="How many inputs the program reads per row.")] = None,
    hidden: Widths = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Hidden layers; found if not given.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="How many questions may be asked in all.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="How many rows are asked at once.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="A file for the answers: an interrupted run goes on from it.")
    ] = None,
    out: Out = None,
    activation: Activation = "relu",
    seed: Seed = 0,
    time_budget: TimeBudget = None,
    json: Json = False,
) -> None:
    """Recover a network by asking it, with a certificate.

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed.

    \b
    Examples:
      neurecover extract truth.npz --out net.npz
      neurecover extract model.onnx --out net.npz
      neurecover extract --command "python model.py" --inputs 10 --keep answers.bin --out net.npz
    """
    if (command is None) == (model is None):
        raise ValueError("extract needs one thing to ask: the file of a network, or --command with a program.")
    if out is not None:
        check_target(out, others=[] if model is None else [model])
    if command is not None and inputs is None:
        raise ValueError("--command needs --inputs, the number of inputs per row.")
    if model is not None:
        check_there(model)
    asked: Any = CommandBox(command) if command is not None else _box(model or Path())
    recovery = nr.extract(
        nr.oracle(asked, inputs, batch=batch, keep=keep, random_state=seed),
        n_hidden=widths(hidden),
        depth=depth,
        query_budget=budget,
        activation=activation,
        random_state=seed,
        time_budget=time_budget,
        progress=terminal.err.is_terminal,
    )
    _show(recovery, out, json)


@app.command()
def estimate(
    samples: Samples,
    method: Method = "hermite",
    form: Annotated[str, typer.Option(help="best, or paper for the algorithm as printed.")] = "best",
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
    """Show an algorithm's own answer, before the finisher.

    Exit status: 0 if it found a network, 4 if not. Nothing is certified: for that, `neurecover recover --method`.

    \b
    Examples:
      neurecover estimate samples.npz --method hermite --hidden 4
      neurecover estimate samples.npz --method hermite --form paper --hidden 4 --out rough.npz
    """
    if out is not None:
        check_target(out, others=samples)
    found = nr.estimate(
        opened(samples, inputs, outputs),
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
        terminal.out.print(terminal.summary_grid(found.rows()))
        if written is not None:
            say(f"Wrote the network to {written}.")
    raise typer.Exit(OK if found.network is not None else FAILED)


def _box(path: Path) -> Any:
    """What is asked: an ONNX file as it stands, in its own precision, or a saved network."""
    return path if path.suffix.lower() == ".onnx" else loaded(path)


def _show(recovery: nr.Recovery, out: Path | None, json: bool) -> NoReturn:
    """The summary on the screen, the network and its certificate in the file, the verdict as exit status."""
    if out is not None:
        recovery.save(out)
    if json:
        machine.answer(machine.recovery_facts(recovery, out))
    else:
        terminal.out.print(terminal.recovery_panel(recovery))
        if out is not None:
            say(f"Wrote the network and its certificate to {out}.")
    raise typer.Exit(STATUS[recovery.certificate.verdict])
