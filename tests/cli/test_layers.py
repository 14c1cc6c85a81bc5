"""`neurecover lowest-layer` and `neurecover halfspaces`, for people and for programs."""

import json
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover import cli
from neurecover.simulate.composites import composite_teacher, products


def status(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main([str(argument) for argument in arguments])
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    truth = composite_teacher(4, 2, products(2), threshold=1.0, kind="tilted", random_state=1)
    X = np.random.default_rng(0).standard_normal((5_000, 4))
    np.savez(tmp_path / "samples.npz", X=X, Y=truth(X))
    truth.save(tmp_path / "truth.npz")
    return tmp_path / "samples.npz"


def test_the_lowest_layer_of_a_file(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = samples.with_name("net.npz")
    assert status("lowest-layer", samples, "--hidden", "2", "--out", out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["network"]["n_hidden"]) == ("exact", 2)
    comparison = nr.compare(nr.Recovery.load(out).network, nr.load(samples.with_name("truth.npz")))
    assert comparison.max_angle < 1e-8
    assert comparison.output_weight_error < 1e-6


def test_recover_points_to_a_command_that_exists(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("recover", samples, "--method", "lowest_layer") == 2
    assert "neurecover lowest-layer" in capsys.readouterr().err
    assert status("lowest-layer", samples, "--method", "hermite") == 2
    assert "neurecover recover" in capsys.readouterr().err
    assert status("lowest-layer", samples, "--upper", "deep") == 2
    assert "--upper-hidden" in capsys.readouterr().err


def test_halfspaces_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).standard_normal((1_000, 2))
    for name, inside in (("union", (X > 1.0).any(axis=1)), ("disc", (X**2).sum(axis=1) < 2.0)):
        rows = np.column_stack([X, inside])
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b,label", comments="")
    assert status("halfspaces", tmp_path / "union.csv", "--outputs", "label", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["set"], answer["inputs"]) == ("statistical", "union", ["a", "b"])
    np.testing.assert_allclose(np.sort(answer["thresholds"]), 1.0, atol=0.1)
    disc = ("halfspaces", tmp_path / "disc.csv", "--outputs", "label", "--number", "2", "--intersection")
    assert status(*disc) in (3, 4)
    shown = capsys.readouterr().out
    assert "curved boundary" in shown
    assert "all n·x ≤ t" in shown
    assert status("halfspaces", tmp_path / "union.csv", "--outputs", "a") == 2
    assert "two values" in capsys.readouterr().err
