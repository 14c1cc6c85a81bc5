"""The commands to use before a recovery: simulate, plan, methods."""

from pathlib import Path
from typing import Annotated

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli import machine
from neurecover.cli.app import app
from neurecover.cli.options import Activation, Json, NoBias, Seed, among, check_memory, check_target, load_network
from neurecover.terminal import say, working

# Repeated here, so that `--help` need not import the numerical libraries; a test compares the two.
KINDS = ("sphere", "gaussian", "orthonormal", "conditioned", "near_parallel")
NAMES = ("gaussian", "mixture", "uniform", "laplace", "student", "rademacher", "exponential", "skewed")


@app.command()
def simulate(
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file for the samples X and Y.")],
    truth: Annotated[Path | None, typer.Option(help="An .npz file for the network itself.")] = None,
    inputs: Annotated[int, typer.Option(min=1, help="Input dimensions.")] = 10,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units.")] = 10,
    outputs: Annotated[int, typer.Option(min=1, help="Outputs.")] = 1,
    samples: Annotated[int, typer.Option(min=1, help="How many samples.")] = 5_000,
    kind: Annotated[
        str, typer.Option(help=f"The geometry of the units: {', '.join(KINDS)}.", autocompletion=among(lambda: KINDS))
    ] = "sphere",
    condition: Annotated[float | None, typer.Option(help="Condition number, for --kind conditioned.")] = None,
    angle: Annotated[float | None, typer.Option(help="Radians between pairs, for --kind near_parallel.")] = None,
    bias: Annotated[float, typer.Option(min=0, help="Standard deviation of the biases.")] = 0.7,
    affine: Annotated[float, typer.Option(min=0, help="Standard deviation of an affine term C x, if any.")] = 0.0,
    noise: Annotated[float, typer.Option(min=0, help="Standard deviation of Gaussian noise on the outputs.")] = 0.0,
    distribution: Annotated[str, typer.Option(help=f"Inputs: {', '.join(NAMES)}; or student(5).")] = "gaussian",
    activation: Activation = "relu",
    seed: Seed = 0,
) -> None:
    """Draw a random network and samples of it.

    \b
    Examples:
      neurecover simulate --inputs 6 --hidden 4 --samples 3000 --out samples.npz --truth truth.npz
      neurecover simulate --inputs 6 --hidden 4 --noise 0.02 --distribution "student(5)" --out noisy.npz
    """
    check_target(out)
    if truth is not None:
        check_target(truth, others=[out])
    check_memory(inputs * hidden + samples * (inputs + hidden + outputs), "The network and its samples")
    network = nr.simulate.teacher(
        inputs,
        hidden,
        outputs,
        kind=kind,
        bias=bias,
        condition=condition,
        angle=angle,
        activation=activation,
        affine=affine,
        random_state=seed,
    )
    from neurecover.models import write_npz

    with working("simulate"):
        X, Y = nr.simulate.sample(network, samples, inputs=distribution, noise=noise, random_state=seed)
        write_npz(out, {"X": X, "Y": Y})
    say(f"Wrote {samples:,} samples to {out}: X has {inputs} columns and Y has {outputs}.")
    if truth is not None:
        network.save(truth)
        say(f"Wrote the network of {hidden} hidden units behind them to {truth}.")


@app.command()
def plan(
    network: Annotated[
        Path | None, typer.Argument(help="A network like the hidden one; without it, give the sizes.")
    ] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Input dimensions.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units.")] = None,
    outputs: Annotated[int, typer.Option(min=1, help="Outputs.")] = 1,
    noise: Annotated[float, typer.Option(min=0, help="Standard deviation of the noise on the outputs.")] = 0.0,
    error: Annotated[float | None, typer.Option(help="The wanted error of a unit's weights, ‖ŵ − w‖.")] = None,
    distribution: Annotated[str, typer.Option(help=f"Inputs: {', '.join(NAMES)}; or student(5).")] = "gaussian",
    no_bias: NoBias = False,
    not_told: Annotated[
        bool, typer.Option("--not-told", help="Plan for a recovery that has to find the number of units.")
    ] = False,
    method: Annotated[str | None, typer.Option(help="Plan for this method's own estimate, by trial runs.")] = None,
    form: Annotated[str, typer.Option(help="The form of the method: best, paper or practice.")] = "best",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Say how many samples a recovery takes.

    \b
    Examples:
      neurecover plan --inputs 6 --hidden 4 --noise 0.1 --error 0.05
      neurecover plan truth.npz --noise 0.1
      neurecover plan --inputs 4 --hidden 3 --method hermite --error 0.2
    """
    like = None if network is None else load_network(network)
    if like is not None and not isinstance(like, nr.Network):
        raise ValueError(f"{network}: plan needs a network of one hidden layer. Got {type(like).__name__} instead.")
    if like is None and (inputs is None or hidden is None):
        raise ValueError("plan needs the file of a network, or --inputs and --hidden.")
    if like is None and inputs is not None and hidden is not None:
        # The memory for a hundred inputs per parameter and for the information matrix computed from them.
        parameters = hidden * (inputs + 1 + outputs)
        check_memory(100 * parameters * (inputs + hidden) + (parameters**2 if noise else 0), "A plan of this size")
    with working("plan"):
        needed = nr.samples_needed(
            like,
            n_inputs=inputs,
            n_hidden=hidden,
            n_outputs=outputs,
            bias=not no_bias,
            noise=noise,
            error=error,
            inputs=distribution,
            told=not not_told,
            method=method,
            form=form,
            random_state=seed,
        )
    if json:
        machine.answer(machine.plain(needed))
    else:
        terminal.out.print(terminal.summary_grid(needed.rows()))


PAPERS = (
    "ATV21: Awasthi, Tang, Vijayaraghavan, Efficient algorithms for learning depth-2 neural networks with general ReLU "
    "activations, NeurIPS 2021.",
    "GKLW19: Ge, Kuditipudi, Li, Wang, Learning two-layer neural networks with symmetric inputs, ICLR 2019.",
    "BJW18: Bakshi, Jayaram, Woodruff, Learning two layer rectified neural networks in polynomial time, 2018.",
    "GP18: Goel, Panigrahy, Recovering the lowest layer of deep networks with high threshold activations, 2018.",
)


@app.command()
def methods(json: Json = False) -> None:
    """List the methods, their papers and what they assume.

    \b
    Examples:
      neurecover methods
      neurecover methods --json
    """
    if json:
        facts = ("name", "paper", "assumes", "finds", "forms")
        machine.answer({"methods": [{name: getattr(method, name) for name in facts} for method in nr.methods()]})
    else:
        terminal.out.print(terminal.methods_table(nr.methods()))
        terminal.out.print("\n".join(PAPERS))
