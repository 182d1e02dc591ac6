"""How far work is: silent when quick, one bar for all, right when shown, told to programs, safe from many threads."""

import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr

import pytest

import empriv.base.progress
from empriv.base.progress import Bar, Standing, duration, listening, progress, whole
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


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is too quick to be shown, and no line too early."""
    for name in ("QUIET_SECONDS", "LINE_SECONDS", "_GLANCE_SECONDS"):
        monkeypatch.setattr(empriv.base.progress, name, 0.001)


def test_quick_work_prints_nothing(terminal):
    with redirect_stderr(terminal), progress(3, "counting") as advance:
        for _ in range(3):
            advance()
    assert terminal.text == ""


@pytest.mark.usefixtures("at_once")
def test_long_work_shows_the_bar_even_before_the_first_unit_is_done(terminal):
    with redirect_stderr(terminal), progress(3, "counting"):
        wait_for(terminal, "counting, 0%, ")


@pytest.mark.usefixtures("at_once")
def test_off_a_terminal_it_is_a_line_every_few_seconds(tmp_path):
    with (tmp_path / "log").open("w+") as log, redirect_stderr(log), progress(4, "counting") as advance:
        advance()
        deadline = time.monotonic() + 30
        while not log.tell() and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].startswith("counting, 25%, ")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("is_terminal", "show"), [(False, None), (True, False)])
def test_a_stand_in_for_stderr_gets_nothing_and_show_false_never_prints(terminal, is_terminal, show):
    terminal.is_terminal = is_terminal
    with redirect_stderr(terminal), progress(3, "counting", show=show) as advance:
        time.sleep(0.1)
        advance(3)
    assert terminal.text == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_show_true_always_prints_the_description_as_it_is(terminal, is_terminal):
    terminal.is_terminal = is_terminal
    with redirect_stderr(terminal), progress(3, "a [red]{task}", show=True) as advance:
        advance(2)
        advance()
    assert "a [red]{task}, 100%" in terminal.text


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
    assert "counting, 50%" in terminal.text


def test_many_threads_lose_no_unit(terminal):
    with redirect_stderr(terminal), progress(4000, "counting", show=True) as advance:
        threads = [threading.Thread(target=lambda: [advance() for _ in range(500)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "counting, 100%" in terminal.text


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


def test_work_within_work_fills_the_unit_of_the_bar_that_is_there(terminal):
    shares = []
    with redirect_stderr(terminal), progress(4, "counting", show=True) as advance:
        for _ in range(4):
            with progress(10, "within", show=True) as further:
                further(10)
            shares.append(empriv.base.progress._shown._filled)
            advance()
    assert "within" not in terminal.text
    assert shares == [0.125, 0.375, 0.625, 0.875]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only entry."""
    now = [100.0]
    monkeypatch.setattr(empriv.base.progress.time, "monotonic", lambda: now[0])
    return now


def test_stages_fill_the_bar_one_after_the_other_and_the_share_never_falls(clock):
    bar = Bar(["Collecting", "Judging"], show=False)
    bar.begin("Collecting")
    clock[0] += 1.0
    assert bar.standing() == Standing("Collecting", 1, 2, 0.0, 1.0)
    bar.begin("Judging")
    assert bar.standing().words == "Judging (step 2 of 2), 1 s so far; Ctrl-C stops it"
    shares = []
    for _ in range(3):  # as many parts as there are: nobody knows beforehand
        advance = bar.part(4)
        for _ in range(4):
            advance()
            shares.append(bar.standing().share)
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] < 1.0
    bar.begin("Collecting")
    assert bar.standing().share == shares[-1]


@pytest.mark.usefixtures("at_once")
def test_a_program_is_told_how_far_the_work_is_although_nothing_is_shown():
    told: list[Standing] = []
    heard = threading.Event()

    def listener(standing: Standing) -> None:
        told.append(standing)
        if standing.share == 0.5:
            heard.set()

    with listening(listener), progress(2, "counting", show=False) as advance:
        advance()
        assert heard.wait(30)
    assert told[-1].stage == "counting"
    count = len(told)
    with progress(2, "counting", show=False):
        time.sleep(0.05)
    assert len(told) == count


@pytest.mark.usefixtures("at_once")
def test_a_bar_that_pauses_shows_nothing_until_the_next_stage(terminal):
    with redirect_stderr(terminal), whole(["Collecting", "Judging"]) as bar:
        bar.begin("Collecting")
        wait_for(terminal, "Collecting (")
        bar.pause()
        before = terminal.text
        time.sleep(0.1)
        assert terminal.text == before
        bar.begin("Judging")
        wait_for(terminal, "Judging (")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99.0, "99 s"), (119.0, "2 min"), (5990.0, "100 min"), (7300.0, "2 hours")]
)
def test_a_duration_in_words(seconds, words):
    assert duration(seconds) == words
