"""Files: written whole or not at all, mode 0600, no pickle.

A saved file is a zip archive of ``meta.json`` (kind, format version, small facts) and one ``.npy`` per array; the
format is described in docs/formats.md.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import FileFormatError, InputError

FORMAT_VERSION = 1
# What zipfile, zlib, json and NumPy raise on bytes that are not what was written. OSError stays: that is the disk's.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, EOFError, NotImplementedError, RuntimeError,
    struct.error, MemoryError, RecursionError,
)  # fmt: skip


def file_path(path: str | PathLike[str]) -> Path:
    """The path of a file; one that no system could open is refused here, with a sentence."""
    if "\0" in os.fsdecode(path):
        raise InputError("`path` must name a file, got a text with a NUL in it.")
    return Path(path)


def write_atomically(path: str | PathLike[str], content: bytes, *, mode: int = 0o600) -> None:
    """Write ``content`` to ``path`` whole or not at all: a temporary file beside it, then a rename."""
    target = file_path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_archive(
    path: str | PathLike[str], *, kind: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write one archive; ``meta`` must be JSON, ``arrays`` must not hold objects."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        header = {"format": "empriv", "version": FORMAT_VERSION, "kind": kind, **meta}
        archive.writestr("meta.json", json.dumps(header, indent=1, allow_nan=False))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def read_archive(path: str | PathLike[str], *, kinds: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Meta and arrays of an archive of one of these kinds."""
    # Read whole first: whatever fails after that is damage, and not the disk's.
    content = io.BytesIO(file_path(path).read_bytes())
    try:
        with zipfile.ZipFile(content) as archive:
            meta = json.loads(archive.read("meta.json"))
            if not isinstance(meta, dict) or meta.get("format") != "empriv":
                raise FileFormatError("The file was not written by empriv.")
            if not isinstance(meta["version"], int):
                raise FileFormatError("The file is damaged: it does not say its format version.")
            if meta["version"] > FORMAT_VERSION:
                raise FileFormatError(
                    f"The file has format version {meta['version']}; this empriv reads up to {FORMAT_VERSION}."
                )
            if meta["kind"] not in kinds:
                raise FileFormatError(f"The file holds {meta['kind']!r}, expected {' or '.join(map(repr, kinds))}.")
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
    except _DAMAGE as error:
        raise FileFormatError("The file is damaged, or was not written by empriv.") from error
    return meta, arrays


def kind_of(path: str | PathLike[str]) -> str | None:
    """What an archive holds, without its arrays; None for what is no archive: `read_archive` says why."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read("meta.json"))
            return str(meta["kind"]) if meta["format"] == "empriv" else None
    except (OSError, *_DAMAGE):
        return None
