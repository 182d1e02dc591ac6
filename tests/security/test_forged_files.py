"""Files are claims: forged noise releases nothing, and no file asks for more memory than empriv would have written."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.base.storage import arrays_from_bytes, arrays_to_bytes, kind_of
from empriv.errors import CertificateError, EmprivError, FileFormatError, InputError
from empriv.noise.law import Law
from empriv.results import Results

G = 2.0**-6
POINT = Law.of(G, [("point", 1.0, 0.0)])
DAY = 3


@pytest.fixture(scope="module")
def data() -> Any:
    amounts = np.random.default_rng(5).lognormal(0.0, 0.5, (30, 6)).round(2)
    rows = pd.DataFrame({"day": np.repeat(np.arange(30), 6), "who": [f"p{k}" for k in range(6)] * 30})
    return empriv.databases(rows.assign(amount=amounts.ravel()), database="day", individual="who")


@pytest.fixture(scope="module")
def audit(data: Any) -> empriv.Audit:
    return empriv.audit(data, "sum(amount)")


@pytest.fixture(scope="module")
def made(audit: empriv.Audit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "noise.empriv"
    empriv.design_noise(audit, epsilon=1.0, delta=0.0, method="classical", granularity=G).save(path)
    return path


@pytest.fixture
def saved(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "noise.empriv"))


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], *, level: int = 6) -> None:
    """Change facts and arrays of an archive, with right checksums, as anybody can who has a zip program."""
    with zipfile.ZipFile(path) as archive:
        meta = json.loads(archive.read("meta.json"))
        arrays = {name: np.load(io.BytesIO(archive.read(name))) for name in archive.namelist() if name != "meta.json"}
    change(meta, arrays)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        archive.writestr("meta.json", json.dumps(meta))
        for name, array in arrays.items():
            if isinstance(array, bytes):
                archive.writestr(name, array)
                continue
            with archive.open(name, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=True)


def nobody_matters(meta: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Results in which nobody changes anything, so that no noise is needed."""
    arrays["entry_q.npy"] = arrays["q.npy"][arrays["entry_database.npy"]]
    meta["law"] = POINT.to_json()


def everything_is_smooth(meta: dict[str, Any], _: dict[str, Any]) -> None:
    """The audit's own results, and a density so wide that nobody can be seen in it."""
    meta["density"] = {"kind": "kde", "kernel": "laplace", "bandwidth": 1e9}
    meta["law"] = POINT.to_json()


@pytest.mark.parametrize("forge", [nobody_matters, everything_is_smooth])
def test_a_forged_noise_file_releases_nothing_through_a_ledger(
    audit: empriv.Audit, saved: Path, tmp_path: Path, forge: Any
) -> None:
    rewrite(saved, forge)
    ledger = empriv.Ledger(tmp_path / "a.ledger")

    def released() -> None:
        forged = empriv.load(saved)  # where nobody matters, it keeps what it promises for the results that it carries
        assert isinstance(forged, empriv.Noise)
        audit.release(float(audit.results.q[DAY]), noise=forged, ledger=ledger, database=DAY)

    with pytest.raises(EmprivError, match=r"for other results|does not: it was altered"):
        released()
    assert len(ledger.entries()) == 1


def test_honest_noise_from_a_file_releases_with_figures_of_the_audit(
    audit: empriv.Audit, saved: Path, tmp_path: Path
) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    noise = empriv.load(saved)
    assert isinstance(noise, empriv.Noise)
    done = audit.release(float(audit.results.q[DAY]), noise=noise, ledger=ledger, database=DAY)
    assert done.entry.achieved.delta == noise.achieved_delta(1.0)
    # The second time nothing is certified: the same noise for the same audit was.
    before = dict(audit.certified)
    audit.release(float(audit.results.q[4]), noise=noise, ledger=ledger, database=4)
    assert audit.certified == before


def test_a_forged_file_of_table_noise(data: Any, tmp_path: Path) -> None:
    audit = empriv.audit(data, ["sum(amount)", "count(*)"])
    path = tmp_path / "joint.empriv"
    empriv.design_noise(audit.risk, epsilon=1.0, delta=0.0, granularity=G).save(path)

    def forge(meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["entry_q.npy"] = arrays["q.npy"][arrays["entry_database.npy"]]
        meta["laws"] = {name: POINT.to_json() for name in meta["laws"]}

    rewrite(path, forge)
    forged = empriv.load(path)
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    values = dict(zip(audit.components, map(float, audit.results.q[DAY]), strict=True))
    with pytest.raises(InputError, match="for other results"):
        audit.release(values, noise=forged, ledger=ledger, database=DAY)  # type: ignore[arg-type]
    # Nor does noise that was altered in memory, with the right results.
    with pytest.raises(CertificateError, match="for the audit at hand"):
        audit.release(values, noise=replace(forged, risk=audit.risk), ledger=ledger, database=DAY)  # type: ignore[arg-type, type-var]
    assert len(ledger.entries()) == 1


def test_a_certificate_of_something_else_releases_nothing(saved: Path) -> None:
    noise = empriv.load(saved)
    assert isinstance(noise, empriv.Noise)
    for changed in ({"law": POINT}, {"epsilon": 0.01}):
        with pytest.raises(CertificateError, match="must keep its promise to be released"):
            replace(noise, **changed).release(1.0)


@pytest.mark.parametrize("name", ["unused.npy", "unused.txt", "entry_q.npy"])
def test_a_small_file_that_would_need_much_memory(saved: Path, name: str) -> None:
    size = 100_000_000

    def forge(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name] = np.zeros(size // 8) if name.endswith("npy") else bytes(size)

    rewrite(saved, forge, level=9)
    assert saved.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        for load in (empriv.load, Results.load):
            with pytest.raises(FileFormatError, match=r"far more memory than its size|holds 'noise'"):
                load(saved)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_a_header_that_promises_more_than_there_is(saved: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)})

    def forge(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["entry_q.npy"] = header.getvalue() + bytes(800)

    rewrite(saved, forge)
    with pytest.raises(FileFormatError, match="is damaged"):
        empriv.load(saved)


def test_members_of_other_names_are_not_read(saved: Path) -> None:
    rewrite(saved, lambda _, arrays: arrays.update({"other.npy": b"not an array", "../known_0.npy": b"", "x": b""}))
    assert isinstance(empriv.load(saved), empriv.Noise)


def array(name: str, change: Callable[[Any], Any]) -> Any:
    def forge(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[f"{name}.npy"] = change(arrays[f"{name}.npy"].copy())

    return forge


def fact(name: str, value: Any) -> Any:
    return lambda meta, _: meta.update({name: value})


def at(place: Any, value: Any) -> Callable[[Any], Any]:
    def change(given: Any) -> Any:
        given[place] = value
        return given

    return change


@pytest.mark.parametrize(
    "forge",
    [
        array("q", lambda q: q.astype(complex)),
        array("q", lambda q: q.astype(object)),
        array("q", lambda q: q.astype(np.float32)),
        array("q", lambda q: q[:, None]),
        array("q", lambda q: q[:-1]),
        array("q", at(0, np.nan)),
        array("entry_q", at(0, np.inf)),
        array("entry_q", lambda q: q.astype("V8")),
        array("outcomes", at(0, 9)),
        array("outcomes", at(0, 2)),
        array("outcomes", lambda codes: codes.astype(float)),
        array("entry_outcomes", at(0, 17)),
        array("starts", at(1, -3)),
        array("starts", at(-1, 10**15)),
        array("starts", lambda starts: starts.astype(float)),
        array("entry_database", at(0, -1)),
        array("entry_database", at(1, 0)),  # the first person twice in the first database
        array("individuals", at(1, "p0")),
        array("databases", at(1, 0)),
        array("databases", lambda labels: labels.reshape(2, -1)),
        fact("components", 5),
        fact("components", "ab"),
        fact("draws", 0),
        fact("draws", True),
        fact("draws", 2.0),
        fact("draws", 10**30),
        fact("epsilon", float("nan")),
        fact("epsilon", -1.0),
        fact("epsilon", 10**400),
        fact("delta", float("nan")),
        fact("reach", []),
        fact("law", None),
        fact("law", {"granularity": "nan", "parts": []}),
        fact("density", {"kind": "kde", "kernel": "laplace", "bandwidth": float("nan")}),
        fact("presence", 7),
        fact("given", True),  # that what is known was taken out, of a file that says nothing of it
        fact("kind", ["noise"]),
        fact("version", -1.5),
    ],
)
def test_what_empriv_never_writes_is_refused(saved: Path, forge: Any) -> None:
    rewrite(saved, forge)
    for load in (empriv.load, empriv.Noise.load):
        with pytest.raises(FileFormatError):
            load(saved)


def understated(path: Path, name: str, size: int, *, header: bytes = b"") -> None:
    """Make a member inflate to ``size`` zeros while the directory says less, with the checksum of what it says."""
    with zipfile.ZipFile(path) as archive:
        held = {member: archive.read(member) for member in archive.namelist()}
    own = held.pop(name)
    claimed = header or own
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    squeezed = compressor.compress(claimed)
    for _ in range(size >> 20):
        squeezed += compressor.compress(bytes(1 << 20))
    squeezed += compressor.flush()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in held.items():
            archive.writestr(member, content)
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_STORED
        archive.writestr(info, squeezed)
        # In the directory, which is written last: a member that is deflated, and small.
        info.compress_type, info.file_size, info.CRC = zipfile.ZIP_DEFLATED, len(claimed), zlib.crc32(claimed)


LARGE_HEADER = b"\x93NUMPY\x02\x00" + (400_000_000).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("name", "header"),
    [("entry_q.npy", b""), ("meta.json", b""), ("entry_q.npy", LARGE_HEADER), ("entry_outcomes.npy", b"")],
)
def test_a_member_that_is_larger_than_the_directory_says(saved: Path, name: str, header: bytes) -> None:
    size = 100_000_000
    understated(saved, name, size, header=header)
    assert saved.stat().st_size < 1_000_000
    with zipfile.ZipFile(saved) as archive:
        assert archive.getinfo(name).file_size < 100_000, "it says that it is small"
    tracemalloc.start()
    try:
        # What the directory says is there, and is all that is read; unless that is no array.
        if header:
            with pytest.raises(FileFormatError, match="is damaged"):
                empriv.load(saved)
        else:
            assert isinstance(empriv.load(saved), empriv.Noise)
            assert kind_of(saved) == "noise"
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("name", ["meta.json", "q.npy"])
def test_compression_that_stops_nowhere_is_refused(saved: Path, name: str, method: int) -> None:
    with zipfile.ZipFile(saved) as archive:
        held = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in held.items():
            archive.writestr(member, content, method if member == name else None)
    with pytest.raises(FileFormatError, match="is damaged"):
        empriv.load(saved)
    assert kind_of(saved) == (None if name == "meta.json" else "noise")


def test_two_members_of_one_name(saved: Path) -> None:
    with zipfile.ZipFile(saved, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("meta.json", archive.read("meta.json"))
    with pytest.raises(FileFormatError, match="is damaged"):
        empriv.load(saved)


def test_members_that_overlap_count_as_often_as_they_are_listed(saved: Path) -> None:
    rewrite(saved, lambda _, arrays: arrays.update({"unused.npy": np.zeros(1_000_000)}), level=9)
    with zipfile.ZipFile(saved, "a") as archive:
        member = archive.getinfo("unused.npy")
        for number in range(300):  # each is the same bytes of the file
            other = copy(member)
            other.filename = f"known_{number}.npy"
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
        archive._didModify = True  # type: ignore[attr-defined]
    assert saved.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="far more memory than its size"):
            empriv.load(saved)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_sizes_of_zip64_are_believed_only_to_be_refused(saved: Path) -> None:
    with zipfile.ZipFile(saved, "a") as archive:
        archive.getinfo("entry_q.npy").file_size = 2**40
        archive._didModify = True  # type: ignore[attr-defined]
    with zipfile.ZipFile(saved) as archive:
        assert archive.getinfo("entry_q.npy").file_size == 2**40
    with pytest.raises(FileFormatError, match="far more memory than its size"):
        empriv.load(saved)
    assert kind_of(saved) == "noise"


def test_arrays_of_a_checkpoint_are_inflated_no_further_than_they_say() -> None:
    arrays = {"meta": np.arange(5, dtype=np.uint8), "q": np.zeros(3)}
    read = arrays_from_bytes(arrays_to_bytes(arrays))
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, q=np.zeros(12_500_000))
    for content in (buffer.getvalue(), b"", b"PK", arrays_to_bytes({"q": np.zeros(3)})[:-40]):
        with pytest.raises(FileFormatError):
            arrays_from_bytes(content)
