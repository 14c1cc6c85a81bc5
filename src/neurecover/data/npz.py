"""Samples in an `.npz` archive with members X and Y, read row by row from the zip stream.

`numpy.load` would decompress a member whole. A member is an `.npy` file, a short header followed
by the rows one after the other, so a pass decompresses as many rows as a block needs.
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

from neurecover.data.npy import UNREADABLE
from neurecover.data.source import Blocks, Source, check_real, check_shapes, numbered


@dataclass(frozen=True)
class _Header:
    """What the `.npy` header of a member says, and the offset at which its values begin."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int

    @property
    def columns(self) -> int:
        return self.shape[1] if len(self.shape) == 2 else 1


class NpzSource(Source):
    """Members X (n, d) and Y (n,) or (n, p) of an archive of np.savez or np.savez_compressed.

    A member in Fortran order holds column after column; a pass first unpacks it to a temporary
    file on disk, which is memory-mapped, so memory stays bounded there too.
    """

    reads_ahead = True

    def __init__(self, path: Path) -> None:
        self.origin = str(path)
        self._path = path
        with self._archive() as archive:
            self._x = self._read_header(archive, "X")
            self._y = self._read_header(archive, "Y")
        check_shapes(self._x.shape, self._y.shape, self.origin)
        self.n_samples = self._x.shape[0]
        self.input_names = numbered("x", self._x.columns)
        self.output_names = numbered("y", self._y.columns)

    def _files(self) -> list[Path]:
        return [self._path]

    def _blocks(self, rows: int) -> Blocks:
        with self._archive() as archive:
            X_blocks = self._member_rows(archive, "X", self._x, rows)
            Y_blocks = self._member_rows(archive, "Y", self._y, rows)
            yield from zip(X_blocks, Y_blocks, strict=True)

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
        if f"{name}.npy" not in archive.namelist():
            raise ValueError(
                f"{self.origin}: expected members X and Y. Got {', '.join(members) or 'none'} instead; "
                "write them with np.savez(path, X=X, Y=Y)."
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
        # Version 3 differs from 2 in the names of record fields alone, and records are no samples.
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
