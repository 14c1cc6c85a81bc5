"""The command as a process: interrupts, pipes, terminals and the time that its help takes."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from commands import COMMAND, ENVIRONMENT, small_teacher
from neurecover.cli.app import best_so_far
from neurecover.models import write_npz
from neurecover.solve import interrupt


def test_ctrl_c_leaves_the_best_network_so_far(tmp_path: Path) -> None:
    """The first Ctrl-C ends the search; what was found is shown, certified and written, and the certificate says so."""
    X = np.random.default_rng(0).standard_normal((4000, 10))
    np.savez(tmp_path / "hard.npz", X=X, Y=np.sin(3 * X).sum(axis=1))
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "recover", "hard.npz", "--out", "net.npz"],
        cwd=tmp_path,
        env=ENVIRONMENT | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        shown = b""
        while b"search" not in shown:  # the progress line of the long part
            shown += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        shown += read_all(ours)
        assert child.wait(120) == 130
        assert child.stdout is not None
        assert "The search was interrupted" in " ".join(child.stdout.read().decode().replace("│", "").split())
    finally:
        child.kill()
        child.wait()
        os.close(ours)
        if child.stdout is not None:
            child.stdout.close()
    assert shown.endswith(b"interrupted\r\n")
    assert b"Traceback" not in shown
    assert nr.Recovery.load(tmp_path / "net.npz").certificate.verdict in ("approximate", "failed")


def test_a_second_ctrl_c_ends_at_once() -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.is_set()
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), best_so_far() as asked:
        twice()
    assert asked.is_set()
    assert not interrupt.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def read_all(descriptor: int) -> bytes:
    """What is left until the other end closes, which a pseudo-terminal reports as an error."""
    content = b""
    try:
        while piece := os.read(descriptor, 4096):
            content += piece
    except OSError:
        pass
    return content


def test_a_reader_that_leaves_early_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*COMMAND, "methods"], stdout=write_end, stderr=subprocess.PIPE, env=ENVIRONMENT)
    os.close(write_end)
    assert done.stderr == b""


def test_a_terminal_without_the_letters_gets_question_marks(tmp_path: Path) -> None:
    write_npz(tmp_path / "net.npz", small_teacher().to_arrays())
    done = subprocess.run(
        [*COMMAND, "compare", "net.npz", "net.npz"],
        cwd=tmp_path,
        capture_output=True,
        env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"weights" in done.stdout


def test_help_waits_for_no_numerical_library() -> None:
    """`--help` answers within half a second: NumPy alone would take half of it."""
    shown = "import sys; from neurecover.cli import main; print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
