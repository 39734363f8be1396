"""Makes lists of descriptors of what programs have: tuples, arrays, tensors.

Misuse is logged and gives None, as programs of NIXL's expect. Neither numpy nor torch is imported.
"""

from __future__ import annotations

import pickle
import struct
import sys
from typing import Any, Optional, Sequence

from . import _bindings as nixlBind
from .logging import get_logger

logger = get_logger(__name__)

MEMORY = {
    "DRAM": nixlBind.DRAM_SEG,
    "VRAM": nixlBind.VRAM_SEG,
    "FILE": nixlBind.FILE_SEG,
    "BLOCK": nixlBind.BLK_SEG,
    "OBJ": nixlBind.OBJ_SEG,
    # Names of older programs.
    "cpu": nixlBind.DRAM_SEG,
    "cuda": nixlBind.VRAM_SEG,
}

LISTS = ("nixlXferDList", "nixlRegDList", "nixlRemoteDList")


def is_tensor(thing: object) -> bool:
    """Whether it is a tensor of torch, or behaves like one."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, getattr(torch, "Tensor", ())):
        return True
    needed = ("data_ptr", "numel", "element_size", "is_contiguous", "get_device")
    return all(callable(getattr(thing, name, None)) for name in needed)


def columns(thing: object) -> Optional[int]:
    """How many columns an array of two dimensions has; 0 for other arrays, None for other things."""
    # Of the class first: making the interface of an array costs more.
    if not hasattr(type(thing), "__array_interface__"):
        return None
    shape: tuple[int, ...] = getattr(thing, "shape", ())
    return shape[1] if len(shape) == 2 else 0


def tensors(found: Sequence[Any]) -> Optional[tuple[Any, list[tuple[int, int, int]]]]:
    """The kind of memory and the ranges of tensors, which must be contiguous and of one device."""
    device = found[0].get_device()
    rows = []
    for each in found:
        if not is_tensor(each):
            logger.error("%s is among tensors: a list of tensors has nothing else", type(each).__name__)
            return None
        if each.get_device() != device:
            logger.error("Tensors of devices %s and %s: a list has those of one device", device, each.get_device())
            return None
        if not each.is_contiguous():
            logger.error("A tensor of shape %s is not contiguous: a list has contiguous ones", tuple(each.shape))
            return None
        rows.append((each.data_ptr(), each.numel() * each.element_size(), max(device, 0)))
    return nixlBind.DRAM_SEG if device == -1 else nixlBind.VRAM_SEG, rows


def _of_rows(cls, width: int, descs, mem_type: Optional[str]):
    """A list of tuples, or of an array with three columns."""
    if mem_type is None:
        logger.error("Please say which kind of memory: mem_type is one of %s", ", ".join(MEMORY))
        return None
    kind = MEMORY[mem_type]
    found = columns(descs)
    if found is not None and found != 3:
        logger.error("An Nx3 array is needed, not one of shape %s", getattr(descs, "shape", None))
        return None
    if found is None and len(descs) > 0 and len(descs[0]) != width:
        logger.error("Tuples of %d elements are needed for %s, not %d", width, cls.__name__, len(descs[0]))
        return None
    return cls(kind, descs)


def build(cls, other, width: int, descs, mem_type: Optional[str]):
    """A `cls` of anything that can be one."""
    if isinstance(descs, cls):
        return descs
    if isinstance(descs, other):
        logger.error("A %s is given where a %s is needed", type(descs).__name__, cls.__name__)
        return None
    if columns(descs) is not None or (isinstance(descs, list) and (not descs or isinstance(descs[0], tuple))):
        return _of_rows(cls, width, descs, mem_type)
    several = [descs] if is_tensor(descs) else descs
    if not isinstance(several, (list, tuple)) or not several or not is_tensor(several[0]):
        logger.error("Descriptors are tuples, an Nx3 array or tensors, not %s", type(descs).__name__)
        return None
    found = tensors(several)
    if found is None:
        return None
    kind, rows = found
    made = cls(kind, [row + (b"",) for row in rows] if width == 4 else rows)
    # The list names their memory: it must not be given to others while it is registered.
    for each in several:
        made._keep(each)
    return made


def remote(descs, mem_type: Optional[str]):
    """A list of other agents' memory."""
    if isinstance(descs, nixlBind.nixlRemoteDList):
        return descs
    if not isinstance(descs, list) or (descs and not isinstance(descs[0], tuple)):
        logger.error("Remote descriptors are tuples (address, length, device, agent), not %s", type(descs).__name__)
        return None
    return _of_rows(nixlBind.nixlRemoteDList, 4, descs, mem_type)


def dumps(descs) -> bytes:
    """A pickle that names NIXL's class, whether `nixl` is ours in this process or not."""
    name = type(descs).__name__
    if not isinstance(descs, (nixlBind.nixlXferDList, nixlBind.nixlRegDList)):
        raise TypeError(f"nixlXferDList or nixlRegDList is expected, not {name}")
    kind, rows = descs.__reduce__()[1][-2:]
    # Protocol 4: the class by name, a byte, bytes, both as arguments of a call, end.
    return b"".join(
        (
            b"\x80\x04cnixl._bindings\n" + name.encode() + b"\n",
            struct.pack("<cB", b"K", kind),
            struct.pack("<cQ", b"\x8e", len(rows)),
            rows,
            b"\x86R.",
        )
    )


class _Lists(pickle.Unpickler):
    """Makes lists of descriptors and nothing else: a pickle of a peer may name any function."""

    def find_class(self, module: str, name: str):
        package, _, rest = module.rpartition(".")
        if rest == "_bindings" and (package in ("nixl", "warpverbs.nixl") or package.startswith("nixl_cu")):
            if name in LISTS:
                return getattr(nixlBind, name)
            if name == "_list_of":
                return nixlBind._list_of
        raise pickle.UnpicklingError(f"{module}.{name} is no list of descriptors")


def loads(data: bytes):
    """A list of its pickle; anything else is a `pickle.UnpicklingError`."""
    import io

    try:
        found = _Lists(io.BytesIO(data)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:
        # Broken bytes end in many kinds of exceptions.
        raise pickle.UnpicklingError(f"no pickle of a list of descriptors: {error!r}") from error
    if not isinstance(found, tuple(getattr(nixlBind, name) for name in LISTS)):
        raise pickle.UnpicklingError(f"a list of descriptors is expected, not {type(found).__name__}")
    return found
