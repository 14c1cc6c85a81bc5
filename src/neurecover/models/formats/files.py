"""Files of plain named arrays: written completely or not at all, and read without unpickling."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

FORMAT_VERSION = 2  # networks without an affine term are written as version 1, which earlier releases can read
OF_SAMPLES = (".npy", ".csv", ".tsv", ".parquet", ".pq")
MOST_BYTES, MOST_TIMES = 64 * 2**20, 20  # a file may unpack to this many bytes, or to this many times its size


def header(kind: str, activation: str, affine: bool = False) -> dict[str, np.ndarray]:
    """Return the arrays that describe a file's contents; older releases refuse a file with an affine term."""
    return {
        "format_version": np.array(FORMAT_VERSION if affine else 1),
        "kind": np.array(kind),
        "activation": np.array(activation),
    }


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read every array of an `.npz` file, without unpickling."""
    path = regular_file(path)
    if path.suffix.lower() in OF_SAMPLES:
        raise ValueError(f"{path}: expected the file of a network, .npz or .onnx. Got {path.suffix!r} instead.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            unpacked, most = sum(member.file_size for member in members), MOST_TIMES * path.stat().st_size + MOST_BYTES
            if unpacked > most:
                raise ValueError(f"it unpacks to {unpacked} bytes, and at most {most} are read")
            return {member.filename.removesuffix(".npy"): _read_member(archive, member) for member in members}
    except Exception as error:  # damage raises any of a dozen errors, from BadZipFile to LZMAError
        raise ValueError(f"{path} is not a readable .npz file of plain arrays ({error}).") from None


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a regular file; refuse a pipe or a device, which may never end, without opening it."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"There is no file {file}.")
    if not file.is_file():
        kind = "a directory" if file.is_dir() else "a pipe or a device"
        raise ValueError(f"{file}: expected a file. Got {kind} instead; write its contents to a file first.")
    return file


def write_npz(path: str | Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays to exactly this path, whatever its suffix; if that fails, an existing file stays unchanged."""
    write_whole(path, lambda target: _write_archive(target, arrays))


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let `write` create a temporary file, then rename it to `path`; if that fails, an existing file is unchanged."""
    # A link is followed to its file. A device or a pipe cannot be replaced and is written to directly.
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write. Got a directory instead.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {Path(path).parent} to write to.")
    if target.exists() and not target.is_file():
        write(target)
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write(beside)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def check_header(arrays: dict[str, np.ndarray], path: str | Path) -> None:
    """Refuse a file of an unknown format version, or without the header that `header` writes."""
    missing = [name for name in ("activation", "format_version") if name not in arrays]
    if missing:
        raise ValueError(
            f"{path} is not a saved network: it lacks {', '.join(missing)}. "
            f"It holds {', '.join(sorted(arrays)) or 'nothing'}."
        )
    version, activation = arrays["format_version"], arrays["activation"]
    if version.shape != () or version.dtype.kind not in "iu" or version < 1:
        raise ValueError(f"{path}: format_version needs to be a whole number from 1. Got {version.tolist()!r} instead.")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}, and this release reads up to {FORMAT_VERSION}. "
            "Update neurecover to read it."
        )
    if activation.shape != () or activation.dtype.kind != "U":
        raise ValueError(f"{path}: activation needs to be one text. Got {activation.tolist()!r} instead.")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read one array, at most as many bytes as the archive's directory states, whatever the array's header claims."""
    with archive.open(member) as file:
        return np.lib.format.read_array(io.BytesIO(file.read(member.file_size)), allow_pickle=False)


def _write_archive(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
