"""The command `neurecover`.

Exit status: 0 for an exact or statistical verdict, 3 for approximate, 4 for failed, 2 for input that cannot be used,
130 when interrupted. Errors are one line on standard error.
"""

import io
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.data import CommandBox, Source
from neurecover.models import write_npz
from neurecover.simulate.names import NAMES
from neurecover.simulate.teachers import KINDS
from neurecover.terminal import complain, say

if TYPE_CHECKING:  # experiments load every paper's code
    from neurecover.experiments import Experiment

OK, DEFECT, BAD_INPUT, APPROXIMATE, FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130
STATUS = {"exact": OK, "statistical": OK, "approximate": APPROXIMATE, "failed": FAILED}
SHOWN_ROWS = 40

# Recent releases of typer carry a click of their own, and both have this class above BadParameter.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Samples = Annotated[list[Path], typer.Argument(help="An .npz, .npy, .csv or .parquet file, or a pair X.npy Y.npy.")]
Inputs = Annotated[str | None, typer.Option(help="Input columns of a table, as names or positions: x1,x2 or 0,1.")]
Outputs = Annotated[str | None, typer.Option(help="Output columns of a table; the last one if none begins with y.")]
Widths = Annotated[str | None, typer.Option(help="Hidden units, or one number per layer: 20,10; found if not given.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same result.")]
Activation = Annotated[str, typer.Option(help="The hidden units' function: relu, leaky_relu(0.1), tanh, softplus, …")]
Folder = Annotated[Path, typer.Option("--out", help="The folder for the tables and pictures.")]


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """Recover the weights of a hidden network from samples of its inputs and outputs.

    Exit status: 0 for an exact or statistical verdict, 3 for approximate, 4 for failed, 2 for bad input.
    """
    if version:
        say(f"neurecover {nr.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command()
def demo() -> None:
    """Hide a network, recover it from samples alone and compare the two.

    Takes seconds and writes nothing. Exit status 0 if every weight is found to 1e-10.
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
def simulate(
    out: Annotated[Path, typer.Option(help="The .npz file for the samples X and Y.")],
    truth: Annotated[Path | None, typer.Option(help="An .npz file for the network itself.")] = None,
    inputs: Annotated[int, typer.Option(min=1, help="Input dimensions.")] = 10,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units.")] = 10,
    outputs: Annotated[int, typer.Option(min=1, help="Outputs.")] = 1,
    samples: Annotated[int, typer.Option(min=1, help="How many samples.")] = 5_000,
    kind: Annotated[str, typer.Option(help=f"The geometry of the units: {', '.join(KINDS)}.")] = "sphere",
    condition: Annotated[float | None, typer.Option(help="Condition number, for --kind conditioned.")] = None,
    angle: Annotated[float | None, typer.Option(help="Radians between pairs, for --kind near_parallel.")] = None,
    bias: Annotated[float, typer.Option(min=0, help="Standard deviation of the biases.")] = 0.7,
    noise: Annotated[float, typer.Option(min=0, help="Standard deviation of Gaussian noise on the outputs.")] = 0.0,
    distribution: Annotated[str, typer.Option(help=f"Inputs: {', '.join(NAMES)}; or student(5).")] = "gaussian",
    activation: Activation = "relu",
    seed: Seed = 0,
) -> None:
    """Draw a random network and samples of it."""
    _check_target(out)
    if truth is not None:
        _check_target(truth)
        _check_distinct(truth, [out])
    network = nr.simulate.teacher(
        inputs,
        hidden,
        outputs,
        kind=kind,
        bias=bias,
        condition=condition,
        angle=angle,
        activation=activation,
        random_state=seed,
    )
    X, Y = nr.simulate.sample(network, samples, inputs=distribution, noise=noise, random_state=seed)
    write_npz(out, {"X": X, "Y": Y})
    say(f"Wrote {samples:,} samples to {out}: X has {inputs} columns and Y has {outputs}.")
    if truth is not None:
        network.save(truth)
        say(f"Wrote the network of {hidden} hidden units behind them to {truth}.")


@app.command()
def recover(
    samples: Samples,
    hidden: Widths = None,
    out: Annotated[Path | None, typer.Option(help="The .npz file for the network and its certificate.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="Hidden layers, where --hidden does not say it.")] = 1,
    inputs: Inputs = None,
    outputs: Outputs = None,
    method: Annotated[str, typer.Option(help="auto, or a name from `neurecover methods`.")] = "auto",
    activation: Activation = "relu",
    no_bias: Annotated[bool, typer.Option("--no-bias", help="Fix all biases and the offset at zero.")] = False,
    seed: Seed = 0,
    time_budget: Annotated[float | None, typer.Option(help="Seconds after which no new work is begun.")] = None,
) -> None:
    """Recover a network from samples and say how far its weights can be trusted.

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed. The network is written in
    every case.
    """
    if out is not None:
        _check_target(out)
        _check_distinct(out, samples)
    recovery = nr.recover(
        _open(samples, inputs, outputs),
        n_hidden=_widths(hidden),
        method=method,
        activation=activation,
        bias=not no_bias,
        depth=depth,
        random_state=seed,
        time_budget=time_budget,
        progress=terminal.err.is_terminal,
    )
    _show(recovery, out)


@app.command()
def extract(
    command: Annotated[
        str | None, typer.Option(help="A program that reads rows of inputs and prints rows of outputs.")
    ] = None,
    network: Annotated[Path | None, typer.Option(help="A saved network to be asked instead, to try it out.")] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="How many inputs the program reads per row.")] = None,
    hidden: Widths = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Hidden layers; found if not given.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="How many questions may be asked in all.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="How many rows are asked at once.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="A file for the answers: an interrupted run goes on from it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The .npz file for the network and its certificate.")] = None,
    activation: Activation = "relu",
    seed: Seed = 0,
    time_budget: Annotated[float | None, typer.Option(help="Seconds after which no new work is begun.")] = None,
) -> None:
    """Ask a black box and read the weights of the network behind it off its answers.

    For instance: neurecover extract --command "python model.py" --inputs 10 --keep answers.bin --out net.npz

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed.
    """
    if (command is None) == (network is None):
        raise ValueError("extract needs something to ask: either --command or --network.")
    if out is not None:
        _check_target(out)
    if command is not None and inputs is None:
        raise ValueError("--command needs --inputs, the number of inputs per row.")
    model: Any = CommandBox(command) if command is not None else nr.load(network or Path())
    n_inputs: int = inputs if inputs is not None else model.n_inputs
    recovery = nr.extract(
        nr.oracle(model, n_inputs, batch=batch, keep=keep, random_state=seed),
        n_hidden=_widths(hidden),
        depth=depth,
        query_budget=budget,
        activation=activation,
        random_state=seed,
        time_budget=time_budget,
        progress=terminal.err.is_terminal,
    )
    _show(recovery, out)


@app.command()
def estimate(
    samples: Samples,
    method: Annotated[str, typer.Option(help="A name from `neurecover methods`.")] = "hermite",
    form: Annotated[str, typer.Option(help="best, or paper for the algorithm as printed.")] = "best",
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units; found if not given.")] = None,
    out: Annotated[Path | None, typer.Option(help="The .npz file for the network.")] = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    activation: Activation = "relu",
    no_bias: Annotated[bool, typer.Option("--no-bias", help="Fix all biases and the offset at zero.")] = False,
    seed: Seed = 0,
    time_budget: Annotated[float | None, typer.Option(help="Seconds after which no new work is begun.")] = None,
) -> None:
    """Show an algorithm's own answer, before the finisher, with its figures.

    Exit status: 0 if it found a network, 4 if not. Nothing is certified: for that, `neurecover recover --method`.
    """
    if out is not None:
        _check_target(out)
        _check_distinct(out, samples)
    found = nr.estimate(
        _open(samples, inputs, outputs),
        n_hidden=hidden,
        method=method,
        form=form,
        activation=activation,
        bias=not no_bias,
        random_state=seed,
        time_budget=time_budget,
    )
    terminal.out.print(terminal.summary_grid(found.rows()))
    if found.network is None:
        raise typer.Exit(FAILED)
    if out is not None:
        found.network.save(out)
        say(f"Wrote the network to {out}.")


@app.command()
def verify(
    network: Annotated[Path, typer.Argument(help="A network that `recover` or `simulate --truth` wrote.")],
    samples: Samples,
    inputs: Inputs = None,
    outputs: Outputs = None,
) -> None:
    """Show how well a network predicts samples.

    Exit status: 0 if the residual of every output is at the level of rounding, or the mean squared error is at most
    three standard errors above the noise that the network's certificate states; otherwise 3 if R² is at least 0.9 for
    every output, and 4 if it is not.
    """
    net, source = nr.load(network), _open(samples, inputs, outputs)
    verification = nr.verify(net, source)
    certificate = _certificate(network)
    say(f"{network} on {verification.n_samples:,} samples of {source.origin}:")
    terminal.out.print(terminal.verification_table(verification, source.output_names))
    if verification.at_rounding:
        say("The residual is at the level of rounding.")
        status = OK
    elif certificate is not None and verification.within_noise(certificate):
        say("The residual is no larger than the noise that the network's certificate states.")
        status = OK
    elif verification.predicts:
        say("The network predicts these samples, R² ≥ 0.9, but not to rounding nor to a noise that is known.")
        status = APPROXIMATE
    else:
        say("The network does not predict these samples: R² is below 0.9.")
        status = FAILED
    raise typer.Exit(status)


@app.command()
def compare(
    network: Annotated[Path, typer.Argument(help="The network that was found.")],
    truth: Annotated[Path, typer.Argument(help="The network that it should be.")],
    up_to_sign: Annotated[bool, typer.Option("--up-to-sign", help="Let a unit match its mirror image.")] = False,
) -> None:
    """Pair the units of two networks and show how far apart they are.

    The exit status is 0 however far that is.
    """
    comparison = nr.compare(nr.load(network), nr.load(truth), up_to_sign=up_to_sign)
    terminal.out.print(terminal.comparison_table(comparison))


@app.command()
def methods() -> None:
    """List the methods, their papers and what they assume."""
    terminal.out.print(terminal.methods_table(nr.methods()))


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="A benchmark, or all; without a name they are listed.")] = None,
    out: Folder = Path("results"),
) -> None:
    """Run a benchmark and save its table."""
    from neurecover import experiments

    _run_experiments("benchmark", experiments.benchmarks(), name, out)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A figure, or all; without a name they are listed.")] = None,
    out: Folder = Path("results"),
) -> None:
    """Measure a figure of one of the papers anew and save its table."""
    from neurecover import experiments

    _run_experiments("figure", experiments.reproductions(), name, out)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ‖ or ² gets a question mark
    sys.exit(_status(arguments))


def _status(arguments: list[str] | None) -> int:
    try:
        status = app(arguments, prog_name="neurecover", standalone_mode=False)
    except UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "neurecover"
        message: str = error.format_message()  # type: ignore[attr-defined]
        complain(f"{message if message.endswith(('.', '?')) else message + '.'} See `{command} --help`.")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except (ValueError, ImportError, OSError, MemoryError, OverflowError) as error:
        complain(_sentence(error))
        return BAD_INPUT
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        complain(f"{type(error).__name__} in {where}: {error}. This is a defect of neurecover, please report it.")
        return DEFECT
    if status == INTERRUPTED:
        terminal.err.print("interrupted")
    return status or OK


def _show(recovery: nr.Recovery, out: Path | None) -> NoReturn:
    """The summary on the screen, the network and its certificate in the file, the verdict as exit status."""
    if out is not None:
        recovery.save(out)
    terminal.out.print(terminal.recovery_panel(recovery))
    if out is not None:
        say(f"Wrote the network and its certificate to {out}.")
    raise typer.Exit(STATUS[recovery.certificate.verdict])


def _widths(text: str | None) -> int | tuple[int, ...] | None:
    """One number, or one per hidden layer."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) >= 1 for word in words):
        raise ValueError(f"--hidden needs whole numbers from 1, as in 20 or 20,10. Got {text!r} instead.")
    return int(words[0]) if len(words) == 1 else tuple(map(int, words))


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'The system'}: {error.strerror.lower()}."
    return str(error) or type(error).__name__


def _open(samples: list[Path], inputs: str | None, outputs: str | None) -> Source:
    where = samples[0] if len(samples) == 1 else tuple(samples)
    return nr.open(where, inputs=_columns(inputs), outputs=_columns(outputs))  # type: ignore[arg-type]


def _columns(text: str | None) -> list[str | int] | None:
    """Names and positions; whole numbers are positions, a negative one counted from the end."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [int(word) if re.fullmatch(r"-?\d+", word) else word for word in words]


def _check_target(path: Path) -> None:
    """Refuse what cannot be written while no work is lost yet."""
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: expected a file name that ends in .npz. Got {path.suffix or 'none'!r} instead.")
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write. Got a directory instead.")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write to.")
    _check_folder(path.parent)


def _check_folder(folder: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{folder}: nothing can be written there ({error.strerror}).") from None


def _check_distinct(target: Path, others: list[Path]) -> None:
    if target.resolve() in {other.resolve() for other in others}:
        raise ValueError(f"{target}: writing there would overwrite the samples. Choose another name.")


def _certificate(path: Path) -> nr.Certificate | None:
    try:
        return nr.Recovery.load(path).certificate
    except ValueError:
        return None


def _run_experiments(what: str, known: "dict[str, Experiment]", name: str | None, folder: Path) -> None:
    from neurecover.experiments.experiment import read_rows

    if name is None:
        terminal.out.print(terminal.experiments_table(known))
        return
    if name != "all" and name not in known:
        raise ValueError(f"There is no {what} {name!r}. Known are {', '.join([*known, 'all'])}.")
    folder.mkdir(parents=True, exist_ok=True)
    _check_folder(folder)
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
