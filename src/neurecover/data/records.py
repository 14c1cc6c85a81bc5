"""The checkpoint folder of a run, from which it can be resumed after an interruption at any moment.

`run.json` says what is computed from which samples (the fingerprint); `pass-3.npz` holds the sums of the third pass and
the number of rows in them; `search.npz` holds the results found between passes. A file is written under a temporary
name and renamed in one step, so a later run finds either the complete old file or the complete new one.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

VERSION = 1  # version of the record format; a folder with another version is refused


@dataclass(frozen=True)
class Record:
    """The sums of a pass, the number of rows in them, the position of the next row, and whether the pass is done."""

    arrays: dict[str, np.ndarray]
    done: int
    position: int
    complete: bool


def read_fingerprint(folder: Path) -> dict[str, Any]:
    """Read the fingerprint of the run whose records are in the folder; an empty dict if there are no records."""
    path = folder / "run.json"
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} cannot be read as a checkpoint: give another folder, or empty it.")
    return found


class Records:
    """The records of one computation, described by `fingerprint`; a folder of another computation is refused."""

    def __init__(self, folder: str | os.PathLike[str], fingerprint: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        wanted = json.loads(json.dumps({"version": VERSION, **fingerprint}))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"The checkpoint folder {self.folder} cannot be made ({error.strerror}).") from None
        found = read_fingerprint(self.folder)
        if not found:
            if any(file.suffix != ".part" for file in self.folder.iterdir()):
                raise ValueError(f"{self.folder} is not empty and holds no checkpoint: give another folder.")
            self._put(self.folder / "run.json", lambda file: file.write(json.dumps(wanted, indent=1).encode()))
            return
        other = [name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name)]
        if other:
            name = other[0]
            raise ValueError(
                f"The checkpoint in {self.folder} is of another run: its {name} is {found.get(name)!r}. Got "
                f"{wanted.get(name)!r} instead; give another folder, or empty it to begin anew."
            )

    def read(self, number: int) -> Record | None:
        """Read the record of a pass; None if there is none."""
        arrays = self.get(f"pass-{number}")
        if arrays is None:
            return None
        done, position, complete = (int(value) for value in arrays.pop("_where"))
        return Record(arrays, done, position, bool(complete))

    def write(self, number: int, record: Record) -> None:
        """Write the record of a pass, replacing any earlier one."""
        where = np.array([record.done, record.position, record.complete])
        self.keep(f"pass-{number}", {**record.arrays, "_where": where})

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """Read the arrays saved under a name; None if there are none."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is damaged ({error}): remove it to compute that part anew.") from None

    def keep(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Save arrays under a name."""
        self._put(self.folder / f"{name}.npz", lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]

    def _put(self, path: Path, write: Callable[[IO[bytes]], object]) -> None:
        beside = path.with_suffix(f".{os.getpid()}.part")
        try:
            with beside.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise OSError(
                f"The checkpoint in {self.folder} cannot be written ({error.strerror}). Make room there and repeat "
                "the call: it continues from what was recorded before."
            ) from None
