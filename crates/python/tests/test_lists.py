"""Lists of descriptors: tuples, arrays, pickles."""

import pickle
import struct

import pytest

from warpverbs.nixl import _bindings as b
from warpverbs.nixl import _lists


def rows(rng, count, width):
    made = []
    for _ in range(count):
        row = (rng.randrange(1 << 64), rng.randrange(1 << 64), rng.randrange(1 << 32))
        made.append(row + (rng.randbytes(rng.randrange(20)),) if width == 4 else row)
    return made


LISTS = [(b.nixlXferDList, 3), (b.nixlRegDList, 4)]


@pytest.mark.parametrize("cls, width", LISTS)
def test_changes_as_a_list(rng, cls, width):
    model, made = rows(rng, 20, width), cls(b.FILE_SEG)
    assert made.isEmpty() and made.getType() == b.FILE_SEG
    for each in model:
        made.append(each) if rng.random() < 0.5 else made.addDesc(each)
    for _ in range(30):
        place = rng.randrange(len(model))
        if rng.random() < 0.5:
            model[place] = rows(rng, 1, width)[0]
            made[place] = model[place]
        elif len(model) > 5:
            del model[place]
            made.remDesc(place)
        assert list(made) == model and made.descCount() == len(model)
        assert made.index(model[-1]) == model.index(model[-1])
    assert made == cls(b.FILE_SEG, model) and made != cls(b.DRAM_SEG, model)
    made.clear()
    assert made.isEmpty() and made != cls(b.FILE_SEG, model)


def test_empty_lists_are_true_and_have_no_length():
    empty = b.nixlXferDList(b.DRAM_SEG)
    assert empty and not hasattr(empty, "__len__")
    with pytest.raises(TypeError):
        hash(empty)


def test_sizes_and_wrong_constructions():
    assert list(b.nixlXferDList(b.DRAM_SEG, 2)) == [(0, 0, 0)] * 2
    assert b.nixlXferDList(b.DRAM_SEG, init_size=3).descCount() == 3
    for descs, error in (
        ([(1, 2)], ValueError),
        ([[1, 2, 3]], TypeError),
        ([(1, 2, -3)], OverflowError),
        ([(1 << 64, 2, 3)], OverflowError),
        ("text", TypeError),
        (b"other bytes", ValueError),
        (1 << 40, ValueError),
        ([("a", 1, 2)], TypeError),
    ):
        with pytest.raises(error):
            b.nixlXferDList(b.DRAM_SEG, descs)
    with pytest.raises(ValueError, match="9 is no kind of memory"):
        b.nixlXferDList(9)


def test_indices_outside():
    made = b.nixlXferDList(b.DRAM_SEG, [(1, 2, 3)])
    for index in (1, -1, 1 << 40):
        with pytest.raises(IndexError, match=str(index)):
            made[index]
        with pytest.raises(IndexError):
            made.remDesc(index)
        with pytest.raises(IndexError):
            made[index] = (1, 2, 3)
    with pytest.raises(b.nixlNotFoundError, match="NIXL_ERR_NOT_FOUND") as found:
        made.index((9, 9, 9))
    assert found.value.kind == "not_found" and found.value.status == "NIXL_ERR_NOT_FOUND"


def test_meta_is_bytes_and_trim_leaves_it_out():
    made = b.nixlRegDList(b.DRAM_SEG, [(1, 2, 3, "té"), (4, 5, 6, b"\0\xff")])
    assert made[0] == (1, 2, 3, "té".encode()) and made[1] == (4, 5, 6, b"\0\xff")
    assert made.trim() == b.nixlXferDList(b.DRAM_SEG, [(1, 2, 3), (4, 5, 6)])


def test_print(capsys):
    b.nixlXferDList(b.VRAM_SEG, [(7, 8, 9)] * 40).print()
    out = capsys.readouterr().out
    assert "40 descriptors of VRAM_SEG" in out and "(7, 8, 9)" in out and "8 more" in out


@pytest.mark.parametrize("dtype", ["u8", "i8", "u4", "i4", "u2", ">u8", ">i4", "u1"])
def test_arrays_of_every_integer(rng, dtype):
    np = pytest.importorskip("numpy")
    top = min(int(np.iinfo(dtype).max), 1 << 62)
    model = [tuple(rng.randrange(top) for _ in range(3)) for _ in range(50)]
    array = np.array(model, dtype=dtype)
    whole = np.zeros((100, 7), dtype=dtype)
    whole[::2, 1:7:2] = array
    for given in (array, np.asfortranarray(array), whole[::2, 1:7:2], array[::-1][::-1]):
        assert list(b.nixlXferDList(b.DRAM_SEG, given)) == model
    assert list(b.nixlRegDList(b.DRAM_SEG, array)) == [row + (b"",) for row in model]


def test_wrong_arrays():
    np = pytest.importorskip("numpy")
    for array in (np.zeros((3, 4), "u8"), np.zeros(3, "u8"), np.zeros((3, 3)), np.zeros((3, 3), "?")):
        with pytest.raises(ValueError):
            b.nixlXferDList(b.DRAM_SEG, array)
    with pytest.raises(ValueError, match="negative"):
        b.nixlXferDList(b.DRAM_SEG, np.full((1, 3), -1, "i4"))
    # An address may be of either 64-bit type: their bits are the same.
    assert b.nixlXferDList(b.DRAM_SEG, np.full((1, 3), -1, "i8"))[0] == ((1 << 64) - 1,) * 3
    assert b.nixlXferDList(b.DRAM_SEG, np.zeros((0, 3), "u8")).isEmpty()


def test_objects_that_describe_an_array():
    class Described:
        def __init__(self, **interface):
            self.__array_interface__ = interface

    held = struct.pack("<6Q", *range(6))
    import ctypes

    buffer = ctypes.create_string_buffer(held)
    good = dict(shape=(2, 3), typestr="<u8", data=(ctypes.addressof(buffer), True), version=3)
    assert list(b.nixlXferDList(b.DRAM_SEG, Described(**good))) == [(0, 1, 2), (3, 4, 5)]
    for change in (
        {"typestr": "<f8"},
        {"typestr": "nonsense"},
        {"shape": (1 << 40, 3)},
        {"strides": (8,)},
        {"mask": good},
    ):
        with pytest.raises(ValueError):
            b.nixlXferDList(b.DRAM_SEG, Described(**{**good, **change}))
    for missing in ("shape", "typestr", "data"):
        with pytest.raises(ValueError, match=missing):
            b.nixlXferDList(b.DRAM_SEG, Described(**{k: v for k, v in good.items() if k != missing}))


@pytest.mark.parametrize("cls, width", LISTS)
def test_pickles(rng, cls, width):
    made = cls(b.VRAM_SEG, rows(rng, rng.randrange(40), width))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(made, protocol)) == made
    bytes_ = _lists.dumps(made)
    assert b"nixl._bindings\n" + cls.__name__.encode() in bytes_
    assert _lists.loads(bytes_) == made and _lists.loads(pickle.dumps(made)) == made


def test_pickles_of_others_are_refused(rng):
    import os

    class Evil:
        def __reduce__(self):
            return (os.getpid, ())

    with pytest.raises(pickle.UnpicklingError, match="getpid"):
        _lists.loads(pickle.dumps(Evil()))
    good = _lists.dumps(b.nixlRegDList(b.DRAM_SEG, rows(rng, 3, 4)))
    for _ in range(300):
        broken = bytearray(good[: rng.randrange(len(good))] if rng.random() < 0.3 else good)
        for _ in range(rng.randrange(1, 4)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            found = _lists.loads(bytes(broken))
        except pickle.UnpicklingError:
            continue
        assert isinstance(found, (b.nixlRegDList, b.nixlXferDList))
    for other in (b"cnixl._bindings\nnixlRegDList\n.", *map(pickle.dumps, (7, [good], None))):
        with pytest.raises(pickle.UnpicklingError, match="list of descriptors"):
            _lists.loads(other)


def test_remote_lists():
    made = b.nixlRemoteDList(b.VRAM_SEG, [(1, 2, 3, "peer")])
    made.append((4, 5, 6, b"other"))
    assert list(made) == [(1, 2, 3, "peer"), (4, 5, 6, "other")]
    with pytest.raises(ValueError):
        made.append((4, 5, 6, b"\xff"))


def test_a_million_rows_are_read_at_once():
    np = pytest.importorskip("numpy")
    import time

    array = np.arange(3_000_000, dtype="u8").reshape(-1, 3)
    start = time.perf_counter()
    made = b.nixlXferDList(b.DRAM_SEG, array)
    # A loop over them in Python takes more than half a second.
    assert time.perf_counter() - start < 0.2
    assert made.descCount() == 1_000_000 and made[999_999] == (2_999_997, 2_999_998, 2_999_999)
