"""The network: forward pass, normal form, files and the refusal of what is not a network."""

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurecover.activations import get
from neurecover.models import Network, load, replace_arrays, write_npz
from neurecover.models.formats.files import FORMAT_VERSION

SPECS = ["relu", "leaky_relu(0.2)", "leaky_relu(-0.5)", "power(2)", "power(0.5)", "power(3.25)", "step", "sigmoid"]
SPECS += ["exp", "abs", "square", "identity"]

every_activation = pytest.mark.parametrize("spec", SPECS)
seeds = st.integers(0, 2**32 - 1)
examples = settings(max_examples=25, deadline=None)


def random_network(rng: np.random.Generator, spec: str = "relu", k: int = 5, affine: bool = False) -> Network:
    W, b, A, c = (rng.standard_normal(shape) for shape in ((k, 4), k, (3, k), 3))
    return Network(W, b, A, c, activation=spec, C=rng.standard_normal((3, 4)) if affine else None)


def assert_same_arrays(first: Network, second: Network) -> None:
    for name in ("W", "b", "A", "c", "C"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.activation == second.activation


@every_activation
def test_forward_pass_is_the_sum_over_units(spec: str) -> None:
    rng = np.random.default_rng(0)
    network, X = random_network(rng, spec), rng.standard_normal((6, 4))
    expected = np.zeros((6, 3))
    for n in range(6):
        for p in range(3):
            total = network.c[p]
            for j in range(5):
                z = sum(network.W[j, i] * X[n, i] for i in range(4)) + network.b[j]
                total += network.A[p, j] * get(spec)(z)
            expected[n, p] = total
    np.testing.assert_allclose(network(X), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(network(X), network.hidden(X) @ network.A.T + network.c, rtol=1e-15)


def test_sizes() -> None:
    network = Network(np.ones((5, 4)), None, np.ones((3, 5)))
    assert (network.n_inputs, network.n_hidden, network.n_outputs) == (4, 5, 3)
    assert network.n_parameters == 5 * 4 + 5 + 3 * 5 + 3
    assert repr(network) == "Network(n_inputs=4, n_hidden=5, n_outputs=3, activation='relu')"


def test_a_network_without_units_is_its_offset() -> None:
    network = Network(np.zeros((0, 4)), None, np.zeros((2, 0)), [1.0, -3.0])
    np.testing.assert_array_equal(network(np.ones((3, 4))), [[1.0, -3.0]] * 3)
    assert network.normal_form().n_hidden == 0


@every_activation
def test_an_affine_term_is_added_to_every_output(spec: str) -> None:
    rng = np.random.default_rng(8)
    network, X = random_network(rng, spec, affine=True), rng.standard_normal((6, 4))
    without = replace_arrays(network, C=None)
    assert network.C is not None
    assert without.C is None
    expected = np.array([[sum(row[i] * x[i] for i in range(4)) for row in network.C] for x in X])
    np.testing.assert_allclose(network(X) - without(X), expected, rtol=1e-10, atol=1e-12)
    assert network.n_parameters == without.n_parameters + 12
    assert repr(network) == repr(without)[:-1] + ", affine=True)"
    np.testing.assert_array_equal(network.take([0, 2]).C, network.C)


TURNABLE = ["relu", "leaky_relu(0.2)", "leaky_relu(-0.5)", "softplus", "silu", "gelu"]


@pytest.mark.parametrize("spec", TURNABLE)
@examples
@given(seed=seeds, zero=st.booleans())
def test_with_an_affine_term_networks_that_differ_in_signs_have_one_normal_form(
    spec: str, seed: int, zero: bool
) -> None:
    """act(z) = act(−z) + m z: a unit turned by hand, its line m a (w·x + b) handed to C and c."""
    rng = np.random.default_rng(seed)
    network = random_network(rng, spec, affine=True)
    if zero:
        network = replace_arrays(network, C=np.zeros((3, 4)))
    turned = rng.random(5) < 0.5
    signs, m = np.where(turned, -1.0, 1.0), float(get(spec)(2.0) - get(spec)(-2.0)) / 2.0
    A, W, b = network.A[:, turned], network.W[turned], network.b[turned]
    other = replace_arrays(
        network,
        W=network.W * signs[:, None],
        b=network.b * signs,
        C=network.C + m * A @ W,
        c=network.c + m * A @ b,
    )
    X = rng.standard_normal((20, 4))
    scale = 1e-13 * (1.0 + np.abs(network.A).sum() * (1.0 + np.abs(network.W).sum()))
    np.testing.assert_allclose(other(X), network(X), rtol=0, atol=10 * scale)
    first, second = network.normal_form(), other.normal_form()
    np.testing.assert_allclose(first(X), network(X), rtol=0, atol=10 * scale)
    for name in ("W", "b", "A", "c", "C"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=0, atol=scale)
    assert np.all(first.W[np.arange(5), np.abs(first.W).argmax(axis=1)] > 0.0)
    # Without C there is nothing for the line to go into, and signs are the function's own.
    plain = replace_arrays(network, C=None).normal_form()
    np.testing.assert_array_equal(np.sign(plain.W), np.sign(network.W))


@pytest.mark.parametrize("spec", ["elu", "power(2)", "power(3.25)", "exp"])
def test_units_without_a_mirror_image_keep_their_sign_beside_an_affine_term(spec: str) -> None:
    network = random_network(np.random.default_rng(9), spec, affine=True)
    normal = network.normal_form()
    np.testing.assert_array_equal(np.sign(normal.W), np.sign(network.W))
    np.testing.assert_array_equal(normal.C, network.C)


@every_activation
@examples
@given(seed=seeds)
def test_normal_form_keeps_the_function_and_is_its_own(spec: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, spec)
    W = network.W * np.exp(rng.uniform(-2, 2, size=(5, 1)))
    W[3] = 0.0
    network = replace_arrays(network, W=W)
    normal = network.normal_form()
    X = rng.standard_normal((20, 4))
    scale = np.abs(network.hidden(X)) @ np.abs(network.A.T) + np.abs(network.c)
    np.testing.assert_array_less(np.abs(normal(X) - network(X)), 1e-12 * scale)

    again = normal.normal_form()
    for name in ("W", "b", "A", "c"):
        np.testing.assert_allclose(getattr(again, name), getattr(normal, name), rtol=1e-14, atol=0)
    np.testing.assert_array_equal(normal.W[3], np.zeros(4))
    if network.activation.homogeneity is not None:
        np.testing.assert_allclose(np.linalg.norm(normal.W[[0, 1, 2, 4]], axis=1), 1.0, rtol=1e-15)


def test_normal_form_of_networks_that_differ_only_in_scale_is_one() -> None:
    network = random_network(np.random.default_rng(1), "power(2)")
    s = np.array([0.5, 2.0, 4.0, 0.125, 1.0])
    scaled = replace_arrays(network, W=network.W * s[:, None], b=network.b * s, A=network.A / s**2)
    first, second = network.normal_form(), scaled.normal_form()
    np.testing.assert_allclose(first.W, second.W, rtol=1e-15)
    np.testing.assert_allclose(first.b, second.b, rtol=1e-15)
    np.testing.assert_allclose(first.A, second.A, rtol=1e-14)


def test_exp_has_no_biases_in_normal_form() -> None:
    normal = Network([[2.0, 0.0]], [np.log(3.0)], [[5.0]], activation="exp").normal_form()
    np.testing.assert_array_equal(normal.b, [0.0])
    np.testing.assert_allclose(normal.A, [[15.0]], rtol=1e-15)
    np.testing.assert_array_equal(normal.W, [[2.0, 0.0]])


def test_take_orders_selects_and_repeats_units() -> None:
    network = random_network(np.random.default_rng(2))
    taken = network.take([3, 1, 3])
    np.testing.assert_array_equal(taken.W, network.W[[3, 1, 3]])
    np.testing.assert_array_equal(taken.b, network.b[[3, 1, 3]])
    np.testing.assert_array_equal(taken.A, network.A[:, [3, 1, 3]])
    np.testing.assert_array_equal(taken.c, network.c)
    assert network.take([]).n_hidden == 0
    masked = network.take(network.b > 0)
    assert masked.n_hidden == np.count_nonzero(network.b > 0)

    # The function is a sum over units, so a partition of the units splits it.
    X = np.random.default_rng(3).standard_normal((8, 4))
    parts = network.take([0, 2])(X) + network.take([1, 3, 4])(X) - network.c
    np.testing.assert_allclose(parts, network(X), rtol=1e-13, atol=1e-13)


def test_arrays_are_copies_and_read_only() -> None:
    W, A = np.eye(2), np.ones((1, 2))
    network = Network(W, [1, 2], A)
    W[0, 0] = 7.0
    assert network.W[0, 0] == 1.0
    for name in ("W", "b", "A", "c"):
        array = getattr(network, name)
        assert array.dtype == np.float64
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    with pytest.raises(AttributeError):
        network.W = W  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], None, [[1.0]]), r"W needs two dimensions. Got shape \(2,\) instead"),
        ((np.eye(2), None, [1.0, 1.0]), r"A needs two dimensions. Got shape \(2,\) instead"),
        ((np.eye(2), None, np.ones((1, 3))), r"one column per row of W, that is 2. Got A of shape \(1, 3\)"),
        ((np.eye(2), [1.0], np.ones((1, 2))), r"b needs shape \(2,\). Got \(1,\) instead"),
        ((np.eye(2), 1.0, np.ones((1, 2))), r"b needs shape \(2,\). Got \(\) instead"),
        ((np.eye(2), None, np.ones((1, 2)), [0.0, 0.0]), r"c needs shape \(1,\). Got \(2,\) instead"),
        (([[1.0, np.nan]], None, [[np.inf]]), "W needs finite numbers. Got 1 that are not"),
        (([[1.0]], [np.inf], [[1.0]]), "b needs finite numbers"),
        (([[1.0]], None, [[1j]]), "A needs real numbers. Got dtype complex128 instead"),
        (([["1"]], None, [[1.0]]), "W needs real numbers"),
        (([[None]], None, [[1.0]]), "W needs real numbers. Got dtype object instead"),
        (([[1.0]], None, [[1.0]], None, "softmax"), "Got 'softmax' instead"),
        (([[1.0]], None, [[1.0]], None, "relu", [[1.0, 2.0]]), r"C needs .* shape \(1, 1\). Got \(1, 2\) instead"),
        (([[1.0]], None, [[1.0]], None, "relu", [1.0]), r"C needs .* Got \(1,\) instead"),
        (([[1.0]], None, [[1.0]], None, "relu", [[np.nan]]), "C needs finite numbers"),
        ((np.eye(2), None, np.zeros((0, 2))), r"A needs one row per output, at least one. Got A of shape \(0, 2\)"),
    ],
)
def test_what_is_not_a_network_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Network(*arguments)


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 4), (0,)])
def test_inputs_of_the_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"X needs shape \(n, 4\)"):
        random_network(np.random.default_rng(4))(np.zeros(shape))


@every_activation
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("name", ["net.npz", "net", "net.of.mine"])
def test_a_saved_network_comes_back_bit_for_bit(spec: str, name: str, affine: bool, tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(5), spec, affine=affine)
    network.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert_same_arrays(load(tmp_path / name), network)
    assert_same_arrays(load(str(tmp_path / name)), network)


def test_extreme_numbers_and_no_units_survive_a_file(tmp_path: Path) -> None:
    for network in (
        Network([[5e-324, -0.0, 1.7e308]], [np.pi], [[1e-300], [2.0]]),
        Network(np.zeros((0, 4)), None, np.zeros((2, 0)), [1.0, -3.0]),
    ):
        network.save(tmp_path / "net.npz")
        assert_same_arrays(load(tmp_path / "net.npz"), network)


def test_a_file_without_an_affine_term_is_one_of_the_first_version() -> None:
    """Releases that know of no C read it; one with a C they would misread, and refuse."""
    rng = np.random.default_rng(5)
    assert random_network(rng).to_arrays()["format_version"] == 1
    assert "C" not in random_network(rng).to_arrays()
    assert random_network(rng, affine=True).to_arrays()["format_version"] == 2 <= FORMAT_VERSION


@pytest.mark.parametrize("affine", [False, True])
def test_copies_and_pickles_are_read_only_too(affine: bool) -> None:
    network = random_network(np.random.default_rng(5), "leaky_relu(0.2)", affine=affine)
    for twin in (copy.copy(network), copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert_same_arrays(twin, network)
        assert not any(array.flags.writeable for array in twin.arrays.values())


def test_the_same_network_is_the_same_file(tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(5))
    network.save(tmp_path / "one.npz")
    network.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_failed_save_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    random_network(np.random.default_rng(5)).save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(path, {"W": np.eye(2), "note": np.array([None])})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["net.npz"]


def test_saving_follows_links_and_does_not_replace_devices(tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(5))
    (tmp_path / "link.npz").symlink_to(tmp_path / "net.npz")
    network.save(tmp_path / "link.npz")
    assert (tmp_path / "link.npz").is_symlink()
    assert_same_arrays(load(tmp_path / "net.npz"), network)
    network.save(os.devnull)
    assert not Path(os.devnull).is_file()


def test_saving_replaces_an_older_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    random_network(rng, k=50).save(tmp_path / "net.npz")
    network = random_network(rng)
    network.save(tmp_path / "net.npz")
    assert_same_arrays(load(tmp_path / "net.npz"), network)


def save_arrays(path: Path, **changes: np.ndarray | None) -> None:
    arrays = random_network(np.random.default_rng(7)).to_arrays() | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


class Trap:
    """Unpickling this would run code, which leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("member", ["W", "activation", "note"])
def test_pickles_are_never_opened(member: str, tmp_path: Path) -> None:
    path, evidence = tmp_path / "net.npz", tmp_path / "evidence"
    save_arrays(path, **{member: np.array([Trap(evidence)], dtype=object)})
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file of plain arrays"):
        load(path)
    path.write_bytes(pickle.dumps(Trap(evidence)))
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file of plain arrays"):
        load(path)
    assert not evidence.exists()
    with path.open("rb") as file:
        pickle.load(file)
    assert evidence.exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(100), b"\x93NUMPY\x01\x00"])
def test_files_of_another_kind_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file"):
        load(tmp_path / "net.npz")


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "net.npy", np.eye(3))
    with pytest.raises(ValueError, match=r"net.npy: expected the file of a network"):
        load(tmp_path / "net.npy")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(kept: float, tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    save_arrays(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file"):
        load(path)


def test_a_changed_weight_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    network = random_network(np.random.default_rng(7))
    network.save(path)
    content = bytearray(path.read_bytes())
    content[content.find(network.W.tobytes()) + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file"):
        load(path)


def test_a_damaged_compressed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    np.savez_compressed(path, **random_network(np.random.default_rng(7)).to_arrays())
    content = bytearray(path.read_bytes())
    start = content.find(b"W.npy") + 60
    content[start : start + 80] = bytes(byte ^ 0x5A for byte in content[start : start + 80])
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file"):
        load(path)


@pytest.mark.parametrize(("offset", "value"), [(6, 1), (8, 97), (8, 14)], ids=["encrypted", "unknown", "not lzma"])
def test_an_archive_that_zipfile_cannot_open_is_refused(offset: int, value: int, tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    save_arrays(path)
    content = path.read_bytes()
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):  # the central directory has two bytes more
        pieces = content.split(signature)
        at = offset + shift - len(signature)
        content = signature.join([pieces[0], *(piece[:at] + bytes([value]) + piece[at + 1 :] for piece in pieces[1:])])
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"net.npz is not a readable .npz file"):
        load(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file .*nowhere.npz"):
        load(tmp_path / "nowhere.npz")
    with pytest.raises(ValueError, match=r"expected a file. Got a directory"):
        load(tmp_path)


@pytest.mark.parametrize("member", ["W", "b", "A", "c", "activation", "format_version"])
def test_missing_members_are_named(member: str, tmp_path: Path) -> None:
    save_arrays(tmp_path / "net.npz", **{member: None})
    with pytest.raises(ValueError, match=f"net.npz is not a saved network: it lacks {member}. It holds .*"):
        load(tmp_path / "net.npz")


def test_samples_are_not_a_network(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", X=np.zeros((3, 2)), Y=np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"it lacks activation, format_version. It holds X, Y"):
        load(tmp_path / "samples.npz")


def test_further_members_are_ignored(tmp_path: Path) -> None:
    save_arrays(tmp_path / "net.npz", seconds=np.array(1.5))
    assert_same_arrays(load(tmp_path / "net.npz"), random_network(np.random.default_rng(7)))


def test_a_file_of_a_later_release_is_refused(tmp_path: Path) -> None:
    save_arrays(tmp_path / "net.npz", format_version=np.array(FORMAT_VERSION + 1))
    with pytest.raises(ValueError, match=f"has format version {FORMAT_VERSION + 1}.* Update neurecover"):
        load(tmp_path / "net.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": np.zeros(9)}, r"b needs shape \(5,\)"),
        ({"A": np.full((3, 5), np.nan)}, "A needs finite numbers"),
        ({"activation": np.array("softmax")}, "Got 'softmax' instead"),
        ({"activation": np.array(["relu"])}, r"activation needs to be one text. Got \['relu'\] instead"),
        ({"activation": np.array(1)}, "activation needs to be one text. Got 1 instead"),
        ({"format_version": np.array([1, 1])}, r"a whole number from 1. Got \[1, 1\] instead"),
        ({"format_version": np.array("1")}, "a whole number from 1. Got '1' instead"),
        ({"format_version": np.array(1.5)}, "a whole number from 1. Got 1.5 instead"),
        ({"format_version": np.array(0)}, "a whole number from 1. Got 0 instead"),
        ({"format_version": np.array(-1)}, "a whole number from 1. Got -1 instead"),
    ],
)
def test_files_with_unusable_arrays_are_refused(changes: dict, message: str, tmp_path: Path) -> None:
    save_arrays(tmp_path / "net.npz", **changes)
    with pytest.raises(ValueError, match=f"net.npz: .*{message}"):
        load(tmp_path / "net.npz")
