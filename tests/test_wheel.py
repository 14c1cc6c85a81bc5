"""The wheel holds all that the package needs, and works where nothing else of the repository is."""

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import neurecover

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(out)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_what_the_wheel_holds(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    files = {
        file.relative_to(source).as_posix()
        for file in (source / "neurecover").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "neurecover/py.typed" in files
    assert any(file.startswith("neurecover/report/templates/") for file in files)
    assert files <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]


def test_it_works_in_a_clean_environment(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the libraries are borrowed: a folder that a .pth file adds brings no editable installs with it."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (packages,) = (tmp_path / "clean" / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    script = (
        "import neurecover as nr\n"
        "X, Y = nr.simulate.sample(nr.simulate.teacher(4, 2, random_state=0), 200, random_state=0)\n"
        "r = nr.recover(X, Y, 2, random_state=0)\n"
        "r.to_html('report.html')\n"
        "print(nr.__file__, r.certificate.verdict)\n"
    )
    said = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.startswith(str(tmp_path))
    assert said.endswith("exact\n")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    command = tmp_path / "clean" / "bin" / "neurecover"
    listed = subprocess.run([command, "methods"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "hermite" in listed
    bench = subprocess.run([command, "bench", "finisher"], capture_output=True, text=True, cwd=tmp_path)
    assert (bench.returncode, bench.stdout, bench.stderr.count("\n")) == (2, "", 1)
    assert bench.stderr.startswith("error: The benchmarks are not installed")


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    newest = re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert newest is not None
    assert neurecover.__version__ == project["version"] == cited[1] == newest[1]
