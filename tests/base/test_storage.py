"""Damaged files are refused with one error, whatever the damage."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from empriv.base.storage import read_archive, write_archive, write_atomically
from empriv.errors import FileFormatError
from empriv.results import Results


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    path = tmp_path / "results.empriv"
    Results.from_arrays(rng.normal(size=20), rng.normal(size=(5, 20))).save(path)
    return path


def test_file_is_private_and_comes_back(saved: Path) -> None:
    assert saved.stat().st_mode & 0o777 == 0o600
    assert Results.load(saved).n_individuals == 5
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_write_is_whole_or_not_at_all(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(_: int) -> None:
        raise OSError("full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="full"):
        write_atomically(saved, b"other")
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def rewrite(path: Path, change: object) -> None:
    """Change the facts, with right checksums."""
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members["meta.json"] = change(members["meta.json"])  # type: ignore[operator]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    path.write_bytes(buffer.getvalue())


@pytest.mark.parametrize(
    "meta", [b"[]", b"{", b"7", b'{"format": "empriv"}', b'{"format": "empriv", "version": "1", "kind": "results"}',
             b'{"format": "empriv", "version": null, "kind": []}', b"[" * 100_000]
)  # fmt: skip
def test_facts_that_empriv_never_writes_are_refused(saved: Path, meta: bytes) -> None:
    rewrite(saved, lambda _: meta)
    with pytest.raises(FileFormatError):
        Results.load(saved)


def test_later_versions_and_other_kinds_are_named(saved: Path, tmp_path: Path) -> None:
    rewrite(saved, lambda meta: json.dumps({**json.loads(meta), "version": 99}).encode())
    with pytest.raises(FileFormatError, match="format version 99"):
        Results.load(saved)
    write_archive(tmp_path / "other", kind="other", meta={}, arrays={})
    with pytest.raises(FileFormatError, match="holds 'other'"):
        read_archive(tmp_path / "other", kinds=("results",))


def test_missing_file_stays_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Results.load(tmp_path / "nothing")
