"""The command-line application, its exit statuses, and its handling of errors and interrupts."""

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import neurecover as nr
from neurecover import terminal
from neurecover.cli.wording import as_options
from neurecover.terminal import complain, say

OK, DEFECT, BAD_INPUT, APPROXIMATE, FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130
STATUS = {"exact": OK, "statistical": OK, "approximate": APPROXIMATE, "failed": FAILED}

# Recent releases of typer contain their own copy of click; in both, this class is the parent of BadParameter.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """Recover the weights of a hidden network from samples of its inputs and outputs.

    Begin with `neurecover demo`; every command has examples in its own --help.

    Exit status: 0 for an exact or statistical verdict, 3 for approximate, 4 for failed, 2 for bad input.
    """
    if version:
        say(f"neurecover {nr.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ‖ or ² gets a question mark
    status = _status(arguments)
    if status == INTERRUPTED:  # sys.exit would wait for calls to a model that no longer answers
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


@contextmanager
def best_so_far() -> Iterator[threading.Event]:
    """Within the context, the first Ctrl-C ends the search with the best result so far, the second ends the program.

    The event is set at the first one.
    """
    from neurecover.solve import interrupt

    asked = threading.Event()

    def end(signal_number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt.set()
        asked.set()
        terminal.err.print("Ending with the best network so far; Ctrl-C again ends at once.")

    before = signal.signal(signal.SIGINT, end)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
        interrupt.clear()


def _status(arguments: list[str] | None) -> int:
    try:
        status = app(arguments, prog_name="neurecover", standalone_mode=False)
    except UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "neurecover"
        message: str = as_options(error.format_message())  # type: ignore[attr-defined]
        complain(f"{message if message.endswith(('.', '?')) else message + '.'} See `{command} --help`.")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except (ValueError, ImportError, OSError, MemoryError, OverflowError) as error:
        complain(as_options(" ".join([_sentence(error), *getattr(error, "__notes__", ())])))
        return BAD_INPUT
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        complain(f"{type(error).__name__} in {where}: {error}. This is a defect of neurecover, please report it.")
        return DEFECT
    if status == INTERRUPTED:
        terminal.err.print("interrupted")
    return status or OK


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'The system'}: {error.strerror.lower()}."
    if isinstance(error, MemoryError):
        return f"This takes more memory than there is ({error or 'none left'}). Choose smaller sizes."
    return str(error) or type(error).__name__
