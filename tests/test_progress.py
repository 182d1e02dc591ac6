"""The progress bar: silent when quick or not on a terminal, right when shown, safe from many threads."""

import re
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr

import pytest

import empriv.base.progress
from empriv.base.progress import progress, whole
from empriv.errors import InputError


class Terminal:
    """Stands for stderr: keeps what is written, and says it is a terminal."""

    def __init__(self, is_terminal: bool = True) -> None:
        self.text = ""
        self.is_terminal = is_terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def wait_for(terminal: Terminal, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in terminal.text and time.monotonic() < deadline:
        time.sleep(0.01)
    assert text in terminal.text


def test_quick_work_prints_nothing(terminal):
    with redirect_stderr(terminal), progress(3, "counting") as advance:
        for _ in range(3):
            advance()
    assert terminal.text == ""


def test_long_work_shows_the_bar_even_before_the_first_unit_is_done(terminal, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 0.01)
    with redirect_stderr(terminal), progress(3, "counting"):
        wait_for(terminal, "0/3")


def test_nothing_is_shown_off_a_terminal(terminal, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 0.0)
    terminal.is_terminal = False
    with redirect_stderr(terminal), progress(3, "counting") as advance:
        time.sleep(0.1)
        advance(3)
    assert terminal.text == ""


def test_show_false_never_prints(terminal, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 0.0)
    with redirect_stderr(terminal), progress(3, "counting", show=False) as advance:
        time.sleep(0.1)
        advance(3)
    assert terminal.text == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_show_true_always_prints(terminal, is_terminal):
    terminal.is_terminal = is_terminal
    with redirect_stderr(terminal), progress(3, "counting", show=True) as advance:
        advance(2)
        advance()
    assert "counting" in terminal.text
    assert "3/3" in terminal.text


def test_the_description_is_shown_as_it_is(terminal):
    with redirect_stderr(terminal), progress(1, "a [red]{task}", show=True) as advance:
        advance()
    assert "a [red]{task}" in terminal.text


def test_the_bar_goes_when_the_work_fails(terminal):
    before = set(threading.enumerate())

    def work() -> None:
        with redirect_stderr(terminal), progress(2, "counting", show=True) as advance:
            advance()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=30)
    assert set(threading.enumerate()) <= before
    assert "1/2" in terminal.text


def test_many_threads_lose_no_unit(terminal):
    with redirect_stderr(terminal), progress(4000, "counting", show=True) as advance:
        threads = [threading.Thread(target=lambda: [advance() for _ in range(500)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "4000/4000" in terminal.text


def test_elapsed_time_counts_from_the_start_of_the_work(terminal, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 1.1)
    with redirect_stderr(terminal), progress(1, "counting") as advance:
        wait_for(terminal, "elapsed")
        advance()
    assert "0:00:00" not in terminal.text.split("elapsed")[0]


@pytest.mark.parametrize("show", [None, False, True])
def test_counts_are_checked(terminal, show):
    with pytest.raises(InputError, match="`total` must be 0 or more, got -1"):
        progress(-1, "counting", show=show).__enter__()
    with (
        redirect_stderr(terminal),
        progress(1, "counting", show=show) as advance,
        pytest.raises(InputError, match="`k` must be 0 or more, got -1"),
    ):
        advance(-1)


def test_rich_is_imported_only_when_shown():
    code = (
        "import sys; from empriv.base.progress import progress\n"
        "with progress(1, 'x') as advance: advance()\n"
        "with progress(1, 'x', show=False) as advance: advance()\n"
        "assert not any(name.split('.')[0] in ('rich', 'numpy') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_a_command_of_several_parts_has_one_bar_whose_share_rises_to_its_end(terminal, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 0.0)
    with redirect_stderr(terminal), whole({"Collecting": 1, "Judging": 3}) as bar:
        bar.begin("Collecting")
        for _ in range(3):  # as many parts as there are: nobody knows beforehand
            with progress(4, "counting") as advance:
                advance(4)
        bar.begin("Judging")
        with progress(2, "judging") as advance:
            advance(2)
        bar.pause()
    assert "counting" not in terminal.text
    shares = [int(share) for share in re.findall(r": (\d+)%", terminal.text)]
    assert shares == sorted(shares)
    assert shares[-1] == 62  # a quarter, and half of the rest


def test_off_a_terminal_it_is_a_line_every_few_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(empriv.base.progress, "LINE_SECONDS", 0.0)
    with (tmp_path / "log").open("w+") as log, redirect_stderr(log), whole({"Judging": 1}) as bar:
        bar.begin("Judging")
        with progress(2, "judging") as advance:
            advance()
        log.seek(0)
        lines = log.read().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("Judging: 25% of all, about ")


def test_a_stand_in_for_stderr_and_a_quiet_command_get_nothing(terminal, monkeypatch):
    monkeypatch.setattr(empriv.base.progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(empriv.base.progress, "LINE_SECONDS", 0.0)
    for is_terminal, show in ((False, None), (True, False)):
        terminal.is_terminal = is_terminal
        with redirect_stderr(terminal), whole({"Judging": 1}, show=show) as bar:
            bar.begin("Judging")
    assert terminal.text == ""
