"""The commands `noise` and `release`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from cli.conftest import Run
from empriv.cli.main import main

ASKED = ("--epsilon", "0.5", "--delta", "0.1")


def drawn(rng: np.random.Generator, effect: float | np.ndarray, days: int) -> empriv.Results:
    q = rng.normal(50.0, 8.0, days)
    return empriv.Results.from_arrays(q, q - effect, databases=[f"d{j}" for j in range(days)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved audit, and noise for it with a granularity of 0.25."""
    folder, rng = tmp_path_factory.mktemp("audited"), np.random.default_rng(3)
    audit = empriv.audit(drawn(rng, rng.exponential(1.0, (4, 40)), 40), epsilon=[0.5])
    audit.save(folder / "audit.empriv")
    empriv.design_noise(audit, epsilon=0.5, delta=0.1, granularity=0.25).save(folder / "noise.empriv")
    return folder


@pytest.mark.slow
def test_noise_is_shown_beside_classical_noise_and_saved(run: Run) -> None:
    written = ("--granularity", "0.25", "--dither", "--save", "made.empriv", "--json", "noise.json")
    said = " ".join(run("noise", "audit.empriv", *ASKED, *written).output.split())
    for words in ("Classical noise that hides the same move", "Upper bound on delta", "Verdict without noise", "±"):
        assert words in said
    read = json.loads(Path("noise.json").read_text())
    assert read["holds"] is True
    assert read["expected_error"] <= read["classical"]["expected_error"] + 0.25
    assert read["against"] == []
    released = run("release", "made.empriv", "--value", "-", text="50\n")
    assert "No rows were given with this answer" in released.stderr
    assert "No rows were given" not in run("release", "made.empriv", "--database", "d3").stderr
    assert float(released.stdout) % 0.25 == 0
    assert len(released.stdout.split()) == 1
    assert "epsilon 0.5" in released.stderr


@pytest.mark.slow
def test_undeclared_granularity_is_not_released(run: Run) -> None:
    assert run("noise", "audit.empriv", *ASKED, "--save", "undeclared.empriv", "--quiet").output == ""
    refused = run("release", "undeclared.empriv", "--value", "50", code=1)
    assert refused.stdout == ""
    assert "a granularity of" in refused.stderr


def test_what_cannot_be_done_is_one_sentence(run: Run) -> None:
    run("noise", "audit.empriv", *ASKED[:2], code=2)
    run("noise", "audit.empriv", code=2)
    as_it_is = run(
        "noise", "audit.empriv", "--epsilon", "0.01", "--delta", "0.01", "--method", "as-it-is", code=3
    )  # fmt: skip
    assert "as it is" in as_it_is.stderr
    run("release", "noise.empriv", code=2)
    run("release", "noise.empriv", "--value", "1", "--value", "2", code=2)
    assert "secret" not in run("release", "noise.empriv", "--value", "secret", code=1).output
    run("release", "noise.empriv", "--database", "nowhere", code=1)
    run("release", "audit.empriv", "--value", "1", code=1)
    assert "must hold an audit" in run("noise", "noise.empriv", *ASKED, code=1).stderr


@pytest.mark.slow
def test_noise_for_many_publications(run: Run) -> None:
    options = ("--epsilon", "1", "--granularity", "0.25", "--times", "12", "--save", "n.empriv", "--json", "n.json")
    shown = run("noise", "audit.empriv", "--delta", "0.2", *options)
    assert "after 12 publications" in shown.output
    said = json.loads(Path("n.json").read_text())
    assert said["times"] == 12
    assert said["achieved_delta"] <= 0.2
    assert empriv.load("n.empriv").times == 12
    assert "a delta above 0" in run("noise", "audit.empriv", "--delta", "0", *options, code=1).output


@pytest.mark.slow
def test_an_answer_with_noise_has_a_page_and_is_shown_again(run: Run) -> None:
    """`noise --report` and `show --noise` tell the same; noise that fits another audit is refused with code 3."""
    written = ("--granularity", "0.01", "--save", "n.empriv", "--report", "noise.html")
    made = run("noise", "audit.empriv", *ASKED, *written)
    assert "in multiples of 0.01." in " ".join(made.output.split())
    shown = run("show", "audit.empriv", "--noise", "n.empriv", "--report", "again.html")
    assert shown.output.splitlines()[0] == made.output.splitlines()[0]
    assert "Wrote again.html." in shown.output
    law = empriv.load("n.empriv").law.words  # type: ignore[union-attr]
    assert all(law in Path(path).read_text() for path in ("noise.html", "again.html"))
    empriv.audit(drawn(np.random.default_rng(0), 500.0 * np.ones((1, 30)), 30)).save("other.empriv")
    run("show", "other.empriv", "--noise", "n.empriv", code=3)
    run("show", "audit.empriv", "--noise", "audit.empriv", code=1)
    run("show", "audit.empriv", "--noise", "n.empriv", "--target", "delta <= 0.1 at 0.1", code=2)


def test_several_answers_are_read_from_standard_input_and_written_as_json(run: Run) -> None:
    q = np.random.default_rng(4).normal(50.0, 8.0, 30)
    both = empriv.Results.stack(
        {name: empriv.Results.from_arrays(q + shift, q[None] + shift - 1.0) for name, shift in (("a", 0.0), ("b", 9.0))}
    )
    empriv.design_noise(empriv.measure(both), epsilon=1.0, delta=0.0, granularity=0.25).save("both.empriv")
    released = run("release", "both.empriv", "--value", "-", "--json", "answer.json", text="b=7\na=-3\n")
    answer = json.loads(Path("answer.json").read_text())["answer"]
    assert [repr(answer[name]) for name in ("a", "b")] == released.stdout.split()
    for wrong in ("", "a=1\n", "7\n"):
        assert CliRunner().invoke(main, ["release", "both.empriv", "--value", "-"], input=wrong).exit_code != 0
    printed = run("release", "both.empriv", "--value", "-", "--json", "-", text="a=1\nb=2\n")
    assert set(json.loads(printed.stdout)["answer"]) == {"a", "b"}
