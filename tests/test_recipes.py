"""The recipes of CONTRIBUTING, followed to the letter on a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def code(title: str) -> str:
    """The Python block of a recipe."""
    section = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None, f"CONTRIBUTING has no recipe {title!r}."
    return re.findall(r"^```python\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)[0]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, in a folder with the benchmarks beside its `src`, as in a checkout."""
    for folder in ("src/neurecover", "benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # compiled files too, whose time stamps stay right
    return tmp_path / "src" / "neurecover"


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in {file.name}"
    file.write_text(text.replace(before, after), encoding="utf-8")


def run(package: Path, script: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DATA = """
import numpy as np, neurecover as nr
truth = nr.simulate.teacher(4, 2, bias=0.0, kind="orthonormal", random_state=0)
X, Y = nr.simulate.sample(truth, 4000, random_state=0)
"""


def test_an_algorithm(package: Path) -> None:
    (package / "algorithms" / "second_moment.py").write_text(code("An algorithm"), encoding="utf-8")
    entry = '    "second_moment": "second_moment",\n'
    edit(package / "algorithms" / "__init__.py", "_MODULES = {\n", "_MODULES = {\n" + entry)
    script = DATA + (
        'found = nr.estimate(X, Y, 2, method="second_moment", bias=False, random_state=0)\n'
        "cosines = np.abs(found.network.W @ truth.W.T).max(axis=0)\n"
        'r = nr.recover(X, Y, 2, method="second_moment", bias=False, random_state=0)\n'
        "print(cosines.min() > 0.8, r.method, r.certificate.verdict, r.estimate.method)\n"
        'print(nr.estimate(X, Y, 9, method="second_moment", bias=False).notes[0])\n'
    )
    first, second = run(package, script).splitlines()
    assert first == "True second_moment exact second_moment"
    assert second == "second_moment finds at most as many units as inputs. Got 9 instead."


def test_an_activation(package: Path) -> None:
    block = code("An activation")
    body = block[block.index("@dataclass(frozen=True)") :]
    edit(package / "activations" / "smooth.py", "def _product(", body + "\n\ndef _product(")
    file = package / "activations" / "__init__.py"
    edit(file, "import SELU, Elu,", "import SELU, Arctan, Elu,")
    edit(file, '    "sigmoid": Sigmoid(),\n', '    "sigmoid": Sigmoid(),\n    "arctan": Arctan(),\n')
    script = (
        "import numpy as np, neurecover as nr\n"
        "from neurecover.activations import get\n"
        'act, z = get("arctan"), np.linspace(-2, 2, 9)\n'
        "slope = (act(z + 1e-6) - act(z - 1e-6)) / 2e-6\n"
        "print(np.abs(slope - act.derivative(z)).max() < 1e-9, np.allclose(act.inverse(act(z)), z))\n"
        "nodes, weights = np.polynomial.hermite_e.hermegauss(200)\n"
        "weights = weights / np.sqrt(2 * np.pi)\n"
        "exact = [weights @ (act(nodes + 0.3) * h) for h in (np.ones(200), nodes, nodes**2 - 1)]\n"
        "print(np.abs(act.hermite(0.3, 2) - exact).max() < 1e-9)\n"
        'truth = nr.simulate.teacher(4, 2, kind="gaussian", activation="arctan", random_state=1)\n'
        "X, Y = nr.simulate.sample(truth, 500, random_state=1)\n"
        'print(nr.recover(X, Y, 2, activation="arctan", random_state=0).certificate.verdict)\n'
    )
    assert run(package, script).split() == ["True", "True", "True", "exact"]


def test_a_data_source(package: Path) -> None:
    script = (
        code("A data source")
        + DATA.replace("bias=0.0", "bias=0.5")
        + (
            'text = "\\n".join(" ".join(map(repr, map(float, row))) for row in np.column_stack([X, Y])[:400])\n'
            "r = nr.recover(Lines(text), n_hidden=2, random_state=0)\n"
            "print(r.certificate.verdict, r.certificate.n_samples)\n"
        )
    )
    assert run(package, script) == "exact 400"


def test_a_check(package: Path) -> None:
    (package / "certificate" / "checks" / "spread.py").write_text(code("A check"), encoding="utf-8")
    edit(package / "certificate" / "verdict.py", "IDENTIFIABLE = (\n", 'IDENTIFIABLE = (\n    "spread",\n')
    question = DATA + (
        "r = nr.recover(X, Y, 2, bias=False, random_state=0)\n"
        'print(r.certificate.verdict, [c.figure > 1.0 for c in r.certificate.checks if c.name == "spread"])\n'
    )
    # Named but never made: no verdict that needs it is given.
    assert run(package, question) == "approximate []"
    certifying = package / "certificate" / "certifying.py"
    edit(certifying, "residual, search, signs\n", "residual, search, signs, spread\n")
    edit(certifying, "    network.inputs,\n", "    network.inputs,\n    spread.spread,\n")
    assert run(package, question) == "exact [True]"


def test_an_experiment(package: Path, tmp_path: Path) -> None:
    benchmarks = tmp_path / "benchmarks"
    (benchmarks / "halves.py").write_text(code("An experiment"), encoding="utf-8")
    edit(benchmarks / "__init__.py", "MODULES = (\n", 'MODULES = (\n    "halves",\n')
    script = f"from neurecover.cli import main; main(['bench', 'halves', '--out', {str(tmp_path / 'out')!r}])"
    run(package, script)
    table = (tmp_path / "out" / "halves.csv").read_text().splitlines()
    assert len(table) == 4
    assert all(float(line.split(",")[1]) < 1e-10 for line in table[1:])
    assert (tmp_path / "out" / "halves.json").exists()
