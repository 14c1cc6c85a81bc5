"""The commands lowest-layer and halfspaces [GP18]."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli import machine
from neurecover.cli.app import STATUS, app
from neurecover.cli.options import (
    Activation,
    Inputs,
    Json,
    Outputs,
    Samples,
    Seed,
    TimeBudget,
    among,
    check_target,
    open_samples,
    parse_widths,
)
from neurecover.cli.solving import Out, show
from neurecover.cli.wording import as_options

LayerMethod = Annotated[
    str,
    typer.Option(
        help="How the first layer is found: a name from `neurecover methods` that finds a composite.",
        autocompletion=among(lambda: [method.name for method in nr.methods() if method.finds == "composite"]),
    ),
]


@app.command()
def lowest_layer(
    samples: Samples,
    hidden: Annotated[int | None, typer.Option(min=1, help="Units of the first layer; found if not given.")] = None,
    out: Out = None,
    upper: Annotated[str, typer.Option(help="What is above: polynomial, network or deep.")] = "polynomial",
    upper_hidden: Annotated[
        str | None, typer.Option(help="Hidden units above the first layer, or one number per layer: 6,4.")
    ] = None,
    max_degree: Annotated[int, typer.Option(min=1, help="The largest degree of a polynomial.")] = 3,
    inputs: Inputs = None,
    outputs: Outputs = None,
    method: LayerMethod = "lowest_layer",
    activation: Activation = "relu",
    upper_activation: Annotated[str, typer.Option(help="The function of the units above the first layer.")] = "relu",
    seed: Seed = 0,
    time_budget: TimeBudget = None,
    json: Json = False,
) -> None:
    """Recover the lowest layer of a deeper network, and the rest.

    For units that are rarely active, as the paper assumes [GP18].

    Exit status: 0 if the verdict is exact or statistical, 3 if approximate, 4 if failed. With --out the
    network is saved whatever the verdict.

    \b
    Examples:
      neurecover lowest-layer samples.npz --hidden 3 --out layer.npz
      neurecover lowest-layer samples.npz --max-degree 2 --json
      neurecover lowest-layer samples.npz --upper network --upper-hidden 3 --upper-activation sigmoid
    """
    if out is not None:
        check_target(out, others=samples)
    widths = parse_widths(upper_hidden, "--upper-hidden")
    with machine.libraries_to_stderr():
        recovery = nr.recover_lowest_layer(
            open_samples(samples, inputs, outputs),
            n_hidden=hidden,
            upper=upper,
            method=method,
            activation=activation,
            n_upper=(widths,) if upper == "deep" and isinstance(widths, int) else widths,
            upper_activation=upper_activation,
            max_degree=max_degree,
            random_state=seed,
            time_budget=time_budget,
            progress=terminal.err.is_terminal,
        )
    show(recovery, out, json)


@app.command()
def halfspaces(
    samples: Samples,
    number: Annotated[int | None, typer.Option(min=1, help="Halfspaces; found if not given.")] = None,
    intersection: Annotated[
        bool, typer.Option("--intersection", help="The class is what all halfspaces contain, not what any does.")
    ] = False,
    inputs: Inputs = None,
    outputs: Outputs = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find the halfspaces behind labels of two values.

    Their union, or intersection, is where the larger value is.

    Exit status: 0 if the verdict is statistical, 3 if approximate, 4 if failed.

    \b
    Examples:
      neurecover halfspaces labels.csv --outputs label
      neurecover halfspaces labels.csv --outputs label --intersection --number 3 --json
    """
    import numpy as np

    from neurecover.certificate import advice

    source = open_samples(samples, inputs, outputs)
    if source.n_outputs != 1:
        raise ValueError(
            f"halfspaces needs one column of labels. Got {source.n_outputs} columns instead: name one with --outputs."
        )
    X, Y = source.collect()
    values = np.unique(Y)
    if len(values) > 2:
        raise ValueError(
            f"halfspaces needs labels of two values. Got {len(values)} values in {source.output_names[0]}."
        )
    model = (nr.HalfspaceIntersection if intersection else nr.HalfspaceUnion)(number, random_state=seed)
    model.fit(X, Y[:, 0])
    certificate, found = model.certificate_, model.halfspaces_
    if json:
        facts: dict[str, Any] = {
            "verdict": certificate.verdict,
            "try": advice(certificate),
            "reasons": certificate.reasons,
        }
        facts |= {"set": "intersection" if intersection else "union", "label": float(values[-1])}
        facts |= {"inputs": source.input_names, "normals": found.normals, "thresholds": found.thresholds}
        facts |= {"angle_errors": found.angle_errors, "threshold_errors": found.threshold_errors}
        facts |= {"flip_rates": model.flip_rates_, "n_samples": certificate.n_samples, "checks": certificate.checks}
        machine.answer(facts)
    else:
        relation = "all n·x ≤ t" if intersection else "some n·x > t"
        rows = [("verdict", f"{certificate.verdict}: {certificate.meaning}")]
        rows.append(("halfspaces", f"{len(found)}; {source.output_names[0]} = {values[-1]:g} where {relation}"))
        for normal, t, angle, error in zip(found.normals, found.thresholds, found.angle_errors, found.threshold_errors):
            listed = " ".join(f"{entry:+.4f}" for entry in normal)
            rows.append(("", f"n = ({listed}) ± {angle:.2g} rad, t = {t:.4f} ± {error:.2g}"))
        for word, sentences in (("try", advice(certificate)), ("because", certificate.reasons)):
            rows += [(word if place == 0 else "", sentence) for place, sentence in enumerate(sentences)]
        terminal.out.print(terminal.verdict_panel(certificate.verdict, rows, as_options))
    raise typer.Exit(STATUS[certificate.verdict])
