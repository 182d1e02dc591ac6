"""Files that were mutated by chance, from a seed: an `EmprivError` comes out, or what was saved, and nothing else.

``EMPRIV_FUZZ=2000`` tries so many of each kind instead of the few that are tried each time.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.errors import EmprivError
from empriv.ledger import Figures, Policy, Release, identity_of
from empriv.results import Results

COUNT = int(os.environ.get("EMPRIV_FUZZ", "40"))
KINDS = ("results", "audit", "audit given what is known", "noise", "table noise", "audit in chunks")
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 7, 10**400, 1e308, float("nan"), float("inf"), "", "a", "\ud800", [], [None], [[1]], {},
    {"a": 1}, "0x1p99999", -0.5,
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One saved file of each kind."""
    folder = tmp_path_factory.mktemp("saved")
    amounts = np.random.default_rng(5).lognormal(0.0, 0.5, (30, 4)).round(2)
    rows = pd.DataFrame({"day": np.repeat(np.arange(30), 4), "who": [f"p{k}" for k in range(4)] * 30})
    data = empriv.databases(rows.assign(amount=amounts.ravel()), database="day", individual="who")
    audit = empriv.audit(data, "sum(amount)")
    both = empriv.audit(data, ["sum(amount)", "count(*)"])
    saved = {
        "results": audit.results,
        "audit": audit,
        "audit given what is known": empriv.audit(data, "sum(amount)", known="buckets:max(amount)"),
        "noise": empriv.design_noise(audit, epsilon=1.0, delta=0.0, method="classical", granularity=2.0**-6),
        "table noise": empriv.design_noise(both.risk, epsilon=1.0, delta=0.0, granularity=2.0**-6),
        "audit in chunks": empriv.audit(data, "sum(amount)", in_chunks=True, progress=False),
    }
    paths = {kind: folder / kind for kind in saved}
    for kind, what in saved.items():
        what.save(paths[kind])
    return paths


def facts(loaded: Any) -> str:
    """All that a file says, to compare: results to the last bit, and the figures."""
    if isinstance(loaded, Results):
        return loaded.digest
    said = loaded.to_json()
    return json.dumps([loaded.risk.results.digest, said], sort_keys=True, default=str)


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    damaged = bytearray(content)
    for place in rng.integers(0, len(content), rng.integers(1, 4)):
        damaged[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(damaged)


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.5:
        return content[: int(rng.integers(0, len(content)))]
    start, stop = sorted(rng.integers(0, len(content), 2).tolist())
    return content[:start] + content[stop:]


@pytest.mark.parametrize("mutate", [flip, cut])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_and_lengths(files: dict[str, Path], tmp_path: Path, kind: str, mutate: Any) -> None:
    whole = files[kind].read_bytes()
    intact = facts(empriv.load(files[kind]))
    rng = np.random.default_rng(17)
    path = tmp_path / "mutated"
    refused = 0
    for _ in range(COUNT):
        path.write_bytes(mutate(whole, rng))
        try:
            loaded = empriv.load(path)
        except EmprivError:
            refused += 1
        else:
            assert facts(loaded) == intact
    assert refused > COUNT / 4


def swapped(members: dict[str, bytes], rng: np.random.Generator) -> None:
    one, other = rng.choice(sorted(members), 2, replace=False)
    members[one], members[other] = members[other], members[one]


def dropped(members: dict[str, bytes], rng: np.random.Generator) -> None:
    del members[rng.choice(sorted(members))]


def retyped(members: dict[str, bytes], rng: np.random.Generator) -> None:
    name = rng.choice(sorted(name for name in members if name.endswith(".npy")))
    given = np.load(io.BytesIO(members[name]))
    types = (np.float64, np.int8, np.int64, np.complex128, np.str_, np.bool_, np.uint16, "S5", "datetime64[D]")
    made = given.astype(np.str_).astype("U8") if rng.random() < 0.2 else given
    if made.dtype.kind != "U":
        made = made.astype(types[rng.integers(len(types))])
    shape = (made, made[:-1], made[None], np.concatenate((made, made)), made[:0], made[::-1])[rng.integers(6)]
    buffer = io.BytesIO()
    np.save(buffer, shape)
    members[name] = buffer.getvalue()


def revalued(members: dict[str, bytes], rng: np.random.Generator) -> None:
    """Another number somewhere in an array."""
    name = rng.choice(sorted(name for name in members if name.endswith(".npy")))
    given = np.load(io.BytesIO(members[name]))
    if given.dtype.kind in "if" and given.size:
        numbers = (0, -1, 5, 127, -128) if given.dtype.kind == "i" else (0, np.nan, np.inf, 1e308, -1e308, 5e-324)
        given.flat[rng.integers(given.size)] = rng.choice(numbers)
    buffer = io.BytesIO()
    np.save(buffer, given)
    members[name] = buffer.getvalue()


def refacted(members: dict[str, bytes], rng: np.random.Generator) -> None:
    """Another fact, at some depth."""
    meta = json.loads(members["meta.json"])
    holder: Any = meta
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = keys[rng.integers(len(keys))]
        if not (isinstance(holder[key], dict | list) and holder[key]) or rng.random() < 0.3:
            break
        holder = holder[key]
    holder[key] = VALUES[rng.integers(len(VALUES))]
    members["meta.json"] = json.dumps(meta).encode()


MUTATIONS: tuple[Callable[[dict[str, bytes], np.random.Generator], None], ...] = (
    swapped, dropped, retyped, revalued, refacted, refacted, refacted,
)  # fmt: skip


# Numbers near the largest that there are make NumPy warn; what comes out of them is another test's.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_members_with_right_checksums(files: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """Whoever rewrites a file may say something else with it, and never more than empriv can say."""
    with zipfile.ZipFile(files[kind]) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    rng = np.random.default_rng(23)
    path = tmp_path / "mutated"
    for number in range(2 * COUNT):
        changed = dict(members)
        MUTATIONS[number % len(MUTATIONS)](changed, rng)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in changed.items():
                archive.writestr(name, content)
        try:
            facts(empriv.load(path))
        except EmprivError as error:
            assert "\n" not in str(error)  # noqa: PT017  # most raise, and some need not


def test_ledgers(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = empriv.Ledger(path, policy=Policy(queries=3))

    def release(number: int) -> Any:
        return ledger.release(
            Release(
                identity=identity_of(range(3)), database=1, query=f"sum(x{number})", method="least",
                law={"scale": 1.0}, asked=Figures(0.1), achieved=Figures(0.1), n_individuals=5,
            ),
            lambda: 1.5,
        )  # fmt: skip

    for number in range(3):
        release(number)
    whole, entries = path.read_bytes(), ledger.entries()
    rng = np.random.default_rng(29)
    refused = 0
    for number in range(2 * COUNT):
        path.write_bytes((flip, flip, cut)[number % 3](whole, rng))
        try:
            if ledger.verify().intact:
                assert ledger.entries() == entries
            else:
                refused += 1
            assert release(1).repeated
        except EmprivError:
            refused += 1
    assert refused > COUNT / 4
