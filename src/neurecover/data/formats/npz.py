"""Samples in an `.npz` archive with members X and Y, read row by row from the zip stream.

`numpy.load` would decompress a whole member at once. A member is an `.npy` file: a short header followed by the rows
in order. A pass can therefore decompress only as many rows as a block needs.
"""

import math
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from neurecover.data.formats.npy import UNREADABLE
from neurecover.data.source import Blocks, Source, check_real


@dataclass(frozen=True)
class _Header:
    """The contents of a member's `.npy` header, and the offset at which the values begin."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int

    @property
    def columns(self) -> int:
        return self.shape[1] if len(self.shape) == 2 else 1


class NpzSource(Source):
    """Members X (n, d) and Y (n,) or (n, p) of an archive of np.savez or np.savez_compressed.

    `weight` names a member (n,) of weights, which becomes the last output.

    A member in Fortran order stores one column after the other. A pass first unpacks such a member to a temporary
    file, which is memory-mapped, so memory stays bounded here too.
    """

    reads_ahead = True

    def __init__(self, path: Path, weight: str | None = None) -> None:
        self.origin = str(path)
        self._path = path
        names = ("X", "Y") if weight is None else ("X", "Y", weight)
        with self._archive() as archive:
            self._headers = {name: self._read_header(archive, name) for name in names}
        beside = None if weight is None else (weight, self._headers[weight].shape, f"{path}, member {weight}")
        self._name_apart(self._headers["X"].shape, self._headers["Y"].shape, beside)

    def _files(self) -> list[Path]:
        return [self._path]

    def _blocks(self, rows: int) -> Blocks:
        with self._archive() as archive:
            members = (self._member_rows(archive, name, header, rows) for name, header in self._headers.items())
            for X, *Y in zip(*members, strict=True):
                yield X, Y[0] if len(Y) == 1 else np.hstack(Y)

    def _member_rows(self, archive: zipfile.ZipFile, name: str, header: _Header, rows: int) -> Iterator[np.ndarray]:
        n, columns = header.shape[0], header.columns
        with archive.open(f"{name}.npy") as member:
            member.read(header.offset)
            if header.fortran_order:
                yield from _transposed_rows(member, header, rows)
                return
            for start in range(0, n, rows):
                m = min(rows, n - start)
                # Reaching the member's last byte makes zipfile compare its checksum.
                values = np.frombuffer(member.read(m * columns * header.dtype.itemsize), header.dtype)
                yield values.reshape(m, columns)

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        # RuntimeError is how zipfile refuses an encrypted member.
        damage = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
        try:
            with zipfile.ZipFile(self._path) as archive:
                yield archive
        except damage as error:
            raise ValueError(
                f"{self.origin}: expected an intact .npz archive. "
                f"Got one that cannot be read ({error}) instead; write it again with np.savez."
            ) from error

    def _read_header(self, archive: zipfile.ZipFile, name: str) -> _Header:
        members = [member.removesuffix(".npy") for member in archive.namelist()]
        if name not in members:
            more, given = ("", "") if name in ("X", "Y") else (f", and {name} for the weights", f", {name}={name}")
            raise ValueError(
                f"{self.origin}: expected members X and Y{more}. Got {', '.join(members) or 'none'} instead; "
                f"write them with np.savez(path, X=X, Y=Y{given})."
            )
        with archive.open(f"{name}.npy") as member:
            header = _parse_header(member, f"{self.origin}, member {name}")
        expected = header.offset + math.prod(header.shape) * header.dtype.itemsize
        found = archive.getinfo(f"{name}.npy").file_size
        if found != expected:
            raise ValueError(
                f"{self.origin}, member {name}: expected {expected} bytes for shape {header.shape}. "
                f"Got {found} instead; the file is damaged."
            )
        return header


def _parse_header(member: IO[bytes], what: str) -> _Header:
    formats = np.lib.format
    try:
        # Version 3 differs from version 2 only in the names of record fields, and records are not samples.
        first = formats.read_magic(member) == (1, 0)
        read = formats.read_array_header_1_0 if first else formats.read_array_header_2_0
        shape, fortran_order, dtype = read(member)
    except UNREADABLE as error:
        raise ValueError(
            f"{what}: expected an array. Got bytes without a readable header ({error}) instead."
        ) from error
    check_real(dtype, what)
    return _Header(shape, fortran_order, dtype, member.tell())


def _transposed_rows(member: IO[bytes], header: _Header, rows: int) -> Iterator[np.ndarray]:
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(member, unpacked, 2**20)
        unpacked.flush()
        values = np.memmap(unpacked, header.dtype, "r", shape=header.shape, order="F")
        for start in range(0, header.shape[0], rows):
            yield np.array(values[start : start + rows])
