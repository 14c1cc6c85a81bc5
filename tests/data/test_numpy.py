"""npy and npz files: missing members, headers that disagree, flipped bytes, arrays of the wrong kind."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from neurecover import data


def _samples(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).standard_normal((n, 3))
    return X, X.sum(axis=1)


def test_npz_members_that_are_missing_or_wrong_are_named(tmp_path: Path) -> None:
    X, Y = _samples()
    path = tmp_path / "s.npz"
    np.savez(path, inputs=X, outputs=Y)
    with pytest.raises(ValueError, match=r"expected members X and Y. Got inputs, outputs instead"):
        data.open(path)
    np.savez(path, X=X, Y=np.array([None] * len(Y)))
    with pytest.raises(ValueError, match=r"member Y: expected real numbers. Got dtype object"):
        data.open(path)
    np.savez(path, X=X, Y=Y[1:])
    with pytest.raises(ValueError, match="200 in X and 199 in Y"):
        data.open(path)
    np.savez(path, X=X, Y=Y)
    with pytest.raises(ValueError, match="holds X and Y apart"):
        data.open(path, outputs=["Y"])
    Y[150] = np.nan
    np.savez(path, X=X, Y=Y)
    with pytest.raises(ValueError, match="row 150, column 'y0'") as caught:
        list(data.open(path).blocks(64))
    assert str(path) in str(caught.value)


def test_npz_header_that_disagrees_with_its_bytes_is_refused(tmp_path: Path) -> None:
    X, Y = _samples()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    path = tmp_path / "s.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", (tmp_path / "X.npy").read_bytes()[:-8])
        archive.write(tmp_path / "Y.npy", "Y.npy")
    with pytest.raises(ValueError, match=r"member X: expected 4928 bytes.*Got 4920"):
        data.open(path)


@pytest.mark.parametrize("writer", [np.savez, np.savez_compressed])
def test_one_flipped_byte_among_the_values_of_an_npz_is_noticed(tmp_path: Path, writer: object) -> None:
    X, Y = _samples()
    path = tmp_path / "s.npz"
    writer(path, X=X, Y=Y)
    content = bytearray(path.read_bytes())
    content[2000] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"intact .npz archive|finite number") as caught:
        data.open(path).collect()
    assert str(path) in str(caught.value)


def test_npy_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    X, Y = _samples()
    np.save(tmp_path / "v.npy", Y)
    with pytest.raises(ValueError, match=r"Got shape \(200,\) instead; two files are opened as a pair"):
        data.open(tmp_path / "v.npy")
    np.save(tmp_path / "o.npy", np.array([[None, 1]]))
    with pytest.raises(ValueError, match=r"o.npy: expected an intact .npy file of numbers"):
        data.open(tmp_path / "o.npy")
    np.save(tmp_path / "t.npy", np.array([["a", "b"]]))
    with pytest.raises(ValueError, match=r"t.npy: expected real numbers"):
        data.open(tmp_path / "t.npy")
    np.save(tmp_path / "X.npy", X[1:])
    with pytest.raises(ValueError, match="199 in X and 200 in Y"):
        data.open((tmp_path / "X.npy", tmp_path / "v.npy"))
    with pytest.raises(ValueError, match="holds X and Y apart"):
        data.open((tmp_path / "X.npy", tmp_path / "v.npy"), inputs=[0])
    with pytest.raises(ValueError, match="a pair"):
        data.open((tmp_path / "X.npy", tmp_path / "v.csv"))
    np.savez(tmp_path / "z.npz", X=X, Y=Y)
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    with pytest.raises(ValueError, match=r"Got an .npz archive"):
        data.open(tmp_path / "z.npy")
