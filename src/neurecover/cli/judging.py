"""The commands for a network that has been found: verify, compare, report, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli import machine
from neurecover.cli.app import APPROXIMATE, FAILED, OK, app
from neurecover.cli.options import (
    Inputs,
    Json,
    Outputs,
    Samples,
    check_exists,
    check_target,
    load_network,
    open_samples,
)
from neurecover.terminal import say, working

FORMS = (".onnx", ".json", ".npz")


@app.command()
def verify(
    network: Annotated[Path, typer.Argument(help="A network that `recover` or `simulate --truth` wrote.")],
    samples: Samples,
    inputs: Inputs = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Show how well a network predicts samples.

    Exit status: 0 if the residual of every output is at the level of rounding, or its mean square at most three
    standard errors above the noise that the network's certificate states; otherwise 3 if R² is at least 0.9 for every
    output, and 4 if it is not.

    \b
    Examples:
      neurecover verify net.npz samples.npz
      neurecover verify net.npz table.csv --outputs y --json
    """
    net, source = load_network(network), open_samples(samples, inputs, outputs)
    with working("verify"):
        verification = nr.verify(net, source)
    found = _recovery(network)
    if verification.at_rounding:
        sentence, status = "The residual is at the level of rounding.", OK
    elif found is not None and verification.within_noise(found.certificate):
        sentence, status = "The residual is no larger than the noise that the network's certificate states.", OK
    elif verification.predicts:
        sentence = "The network predicts these samples, R² ≥ 0.9, but neither to rounding nor to a known noise."
        status = APPROXIMATE
    else:
        sentence, status = "The network does not predict these samples: R² is below 0.9.", FAILED
    if json:
        machine.answer({"says": sentence, "outputs": source.output_names} | machine.plain(verification))
    else:
        say(f"{network} on {verification.n_samples:,} samples of {source.origin}:")
        terminal.out.print(terminal.verification_table(verification, source.output_names))
        say(sentence)
    raise typer.Exit(status)


@app.command()
def compare(
    network: Annotated[Path, typer.Argument(help="The network that was found.")],
    truth: Annotated[Path, typer.Argument(help="The network that it should be.")],
    up_to_sign: Annotated[bool, typer.Option("--up-to-sign", help="Let a unit match its mirror image.")] = False,
    json: Json = False,
) -> None:
    """Show how far apart two networks are, unit by unit.

    The exit status is 0 however far that is.

    \b
    Example:
      neurecover compare net.npz truth.npz
    """
    comparison = nr.compare(load_network(network), load_network(truth), up_to_sign=up_to_sign)
    if json:
        machine.answer(machine.plain(comparison))
    else:
        terminal.out.print(terminal.comparison_table(comparison))


@app.command()
def report(
    recovery: Annotated[Path, typer.Argument(help="A file that `recover` or `extract` wrote.")],
    truth: Annotated[Path | None, typer.Option(help="The true network, to compare with.")] = None,
    samples: Annotated[Path | None, typer.Option(help="Further samples to be predicted.")] = None,
    outputs: Outputs = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .html file; by default beside the recovery."),
    ] = None,
) -> None:
    """Write a report of a recovery: one HTML file.

    It shows the verdict and its checks, weights, units, fit, residuals and stages, and loads nothing from outside, so
    that it can be mailed and archived.

    \b
    Examples:
      neurecover report net.npz
      neurecover report net.npz --truth truth.npz --samples samples.npz -o report.html
    """
    check_exists(recovery)
    target = out if out is not None else recovery.with_suffix(".html")
    check_target(target, ".html")
    found = _recovery(recovery)
    if found is None:
        raise ValueError(f"{recovery} holds no recovery: a report is of a file that `recover` or `extract` wrote.")
    known = None if truth is None else load_network(truth)
    source = None if samples is None else open_samples([samples], outputs=outputs)
    with working("report"):
        found.to_html(target, known, source)
    say(f"Wrote the report to {target}.")


@app.command()
def export(
    network: Annotated[Path, typer.Argument(help="A file that `recover`, `extract` or `simulate --truth` wrote.")],
    out: Annotated[Path, typer.Argument(help="The file to write; its suffix says in which form.")],
    dtype: Annotated[str, typer.Option(help="float64, or float32 for an .onnx file.")] = "float64",
) -> None:
    """Write a network for other programs.

    As .onnx for any runtime of it, as .json for any language, or as .npz with its arrays alone; all hold every weight
    to the last bit, but for --dtype float32.

    \b
    Examples:
      neurecover export net.npz model.onnx --dtype float32
      neurecover export net.npz net.json
      neurecover export net.npz bare.npz
    """
    net, suffix = load_network(network), out.suffix.lower()
    if suffix not in FORMS:
        raise ValueError(f"{out}: expected a name that ends in {', '.join(FORMS)}. Got {out.suffix or 'none'!r}.")
    if dtype != "float64" and suffix != ".onnx":
        raise ValueError(f"--dtype is for .onnx files; {suffix} holds float64. Got {dtype!r} instead.")
    check_target(out, suffix, others=[network])
    if suffix == ".npz":
        net.save(out)
    elif suffix == ".json":
        from neurecover.models.formats.files import write_whole

        text = machine.as_json(machine.network_facts(net) or {}) + "\n"
        write_whole(out, lambda target: target.write_text(text, encoding="utf-8"))
    elif isinstance(net, nr.Composite):
        raise ValueError(f"{network} holds a Composite, and ONNX files hold networks alone: write .npz or .json.")
    else:
        net.to_onnx(out, dtype=dtype)
    say(f"Wrote the network to {out}.")


def _recovery(path: Path) -> nr.Recovery[Any] | None:
    """Read a file written by `recover` or `extract`; return None for a network without a certificate."""
    load_network(path)
    try:
        return nr.Recovery.load(path)
    except ValueError:
        return None
