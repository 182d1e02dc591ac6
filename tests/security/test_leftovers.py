"""Whatever ends a run, people's rows do not stay on disk and its workers do not live on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from empriv.base import scratch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them: run it on Linux or macOS")

RUN = """
import os, sys, time
import numpy as np, pandas as pd
import empriv

folder = sys.argv[1]

def slow(rows):
    open(f"{folder}/{os.getpid()}", "w").close()
    time.sleep(0.05)
    return rows["x"].sum()

if __name__ == "__main__":
    days, people = np.repeat(np.arange(40), 50), np.tile(np.arange(50), 40)
    frame = pd.DataFrame({"day": days, "who": people, "x": np.arange(2000.0)})
    empriv.collect(empriv.databases(frame, database="day", individual="who"), slow, jobs=2, progress=False)
"""

NEXT = """
import pandas as pd
import empriv

frame = pd.DataFrame({"day": [0, 0, 1, 1], "who": [0, 1, 0, 1], "x": [1.0, 2.0, 3.0, 4.0]})
empriv.collect(empriv.databases(frame, database="day", individual="who"), "sum(x)")
"""


def until(happened: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # one that nobody has waited for is dead, too
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def rows(folder: Path) -> list[Path]:
    # os.walk, which does not mind a folder that goes while it looks
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names if name == "rows.parquet"]


def environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}


@contextmanager
def running(command: list[str], temporary: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        env=environment(temporary),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=60)


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_rows_and_workers_go(tmp_path: Path, temporary: Path, blow: signal.Signals) -> None:
    script, pids = tmp_path / "script.py", tmp_path / "pids"
    script.write_text(RUN)
    pids.mkdir()
    with running([sys.executable, str(script), str(pids)], temporary) as process:
        assert until(lambda: rows(temporary) and len(list(pids.iterdir())) >= 2, 120), "two workers are at work"
        scratch.sweep(str(temporary))
        assert rows(temporary), "rows of a process that lives are left alone"
        process.send_signal(blow)
        assert process.wait(timeout=60) == -blow, "it ends as it would without empriv"
    workers = [int(file.name) for file in pids.iterdir()]
    try:
        assert until(lambda: not any(map(is_alive, workers)))
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
    if blow == signal.SIGKILL:
        assert rows(temporary), "nobody could remove them"
        subprocess.run([sys.executable, "-c", NEXT], env=environment(temporary), check=True, timeout=120)
    assert list(temporary.glob("empriv-*")) == []


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_ends_in_order(tmp_path: Path, temporary: Path, blow: signal.Signals) -> None:
    rng = np.random.default_rng(0)
    file = tmp_path / "data.csv"
    pd.DataFrame({"day": np.arange(8000) % 5, "who": np.arange(8000) % 9, "x": rng.normal(size=8000)}).to_csv(file)
    query = "SELECT (SELECT count(*) FROM data AS a, data AS b, data AS c WHERE a.x < b.x + c.x) FROM data"
    command = [sys.executable, "-m", "empriv", "audit", str(file), "--database", "day", "--individual", "who"]
    with running([*command, "--query", query], temporary) as process:
        assert until(lambda: sum("empriv-" in name for _, names, _ in os.walk(temporary) for name in names) > 1, 120), (
            "the engine has opened its folder"
        )
        process.send_signal(blow)
        assert process.wait(timeout=60) == 128 + blow
    assert list(temporary.iterdir()) == []


def test_only_what_is_surely_left_behind_is_swept(temporary: Path) -> None:
    def folder(name: str, mode: int = 0o700, owner: bool = True) -> Path:
        made = temporary / name
        made.mkdir()
        (made / "rows.parquet").write_bytes(b"rows")
        if owner:
            (made / ".owner").touch(0o600)
        made.chmod(mode)
        return made

    left = folder("empriv-left")
    kept = [folder("empriv-open", 0o755), folder("empriv-without", owner=False), folder("other-left")]
    linked = folder("empriv-linked", owner=False)
    (linked / ".owner").symlink_to(left / ".owner")
    (left / "elsewhere").symlink_to(kept[2])
    (temporary / "empriv-link").symlink_to(kept[2])
    with scratch.scratch_directory(str(temporary)) as path:
        scratch.sweep(str(temporary))
        assert Path(path).stat().st_mode & 0o777 == 0o700
        names = {"empriv-open", "empriv-without", "other-left", "empriv-linked", "empriv-link", Path(path).name}
        assert {file.name for file in temporary.iterdir()} == names
    assert all((made / "rows.parquet").exists() for made in (*kept, linked))
    assert not Path(path).exists()


def test_many_processes_at_once_do_not_sweep_each_other(temporary: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom empriv.base.scratch import scratch_directory\n"
        "for _ in range(150):\n    with scratch_directory(sys.argv[1]) as path:\n"
        "        Path(path, 'rows').write_bytes(b'x')\n        assert Path(path, 'rows').exists()\n"
    )
    command = [sys.executable, "-c", code, str(temporary)]
    processes = [subprocess.Popen(command, env=environment(temporary)) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert list(temporary.iterdir()) == []


def test_handlers_of_others_stay_and_ours_are_taken_back(temporary: Path) -> None:
    def own(number: int, frame: Any) -> None:
        del number, frame

    before = signal.signal(signal.SIGTERM, own)
    hup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with scratch.scratch_directory(str(temporary)):
            assert signal.getsignal(signal.SIGTERM) is own
            assert callable(signal.getsignal(signal.SIGHUP))
            with scratch.scratch_directory(str(temporary)):
                pass
            assert callable(signal.getsignal(signal.SIGHUP))
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL

        def hang_up() -> None:
            with scratch.orderly_exit():
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(10)

        with pytest.raises(SystemExit) as ended:
            hang_up()
        assert ended.value.code == 128 + signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        seen: list[Any] = []

        def elsewhere() -> None:
            with scratch.scratch_directory(str(temporary)):
                seen.append(signal.getsignal(signal.SIGHUP))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [signal.SIG_DFL]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, hup)


def test_a_process_that_starts_while_its_folder_goes_is_ended() -> None:
    with scratch.scratch_directory() as folder:
        pass
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as late,
        scratch.writing_into(folder, late),
    ):
        assert late.wait(timeout=60) != 0
