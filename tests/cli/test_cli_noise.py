"""The commands `noise` and `release`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv.cli.audit import show
from empriv.cli.main import Commands
from empriv.cli.noise import noise
from empriv.cli.release import release


@click.group(cls=Commands)
def group() -> None:
    pass


group.add_command(noise)
group.add_command(release)
group.add_command(show)


def _run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(group, list(arguments), input=text)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    rng = np.random.default_rng(3)
    q = rng.normal(50, 8, 40)
    results = empriv.Results.from_arrays(q, q - rng.exponential(1.0, (4, 40)), databases=[f"d{j}" for j in range(40)])
    path = tmp_path / "audit.empriv"
    empriv.audit(results, epsilon=[0.5]).save(path)
    return str(path)


def test_noise_is_shown_beside_classical_noise_and_saved(saved: str, tmp_path: Path) -> None:
    target, figures = str(tmp_path / "noise.empriv"), str(tmp_path / "noise.json")
    done = _run(
        "noise", saved, "--epsilon", "0.5", "--delta", "0.1", "--granularity", "0.25", "--dither", "--save", target,
        "--json", figures,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    for words in ("Classical noise that hides the same move", "Upper bound on delta", "Verdict without noise", "±"):
        assert words in said
    read = json.loads(Path(figures).read_text())
    assert read["holds"] is True
    assert read["expected_error"] <= read["classical"]["expected_error"] + 0.25
    assert read["against"] == []

    released = _run("release", target, "--value", "-", text="50\n")
    assert "No rows were given with this answer" in released.stderr
    assert "No rows were given" not in _run("release", target, "--database", "d3").stderr
    assert released.exit_code == 0
    assert float(released.stdout) % 0.25 == 0
    assert len(released.stdout.split()) == 1
    assert "epsilon 0.5" in released.stderr
    assert _run("release", target, "--database", "d3").exit_code == 0


def test_undeclared_granularity_is_not_released(saved: str, tmp_path: Path) -> None:
    target = str(tmp_path / "noise.empriv")
    assert _run("noise", saved, "--epsilon", "0.5", "--delta", "0.1", "--save", target, "--quiet").output == ""
    refused = _run("release", target, "--value", "50")
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "a granularity of" in refused.stderr


def test_what_cannot_be_done_is_one_sentence(saved: str, tmp_path: Path) -> None:
    target = str(tmp_path / "noise.empriv")
    assert _run("noise", saved, "--epsilon", "0.5").exit_code == 2
    assert _run("noise", saved).exit_code == 2
    as_it_is = _run("noise", saved, "--epsilon", "0.01", "--delta", "0.01", "--method", "as-it-is")
    assert as_it_is.exit_code == 3
    assert "as it is" in as_it_is.stderr
    given = ("noise", saved, "--epsilon", "0.5", "--delta", "0.1", "--granularity", "0.25", "--save", target, "--quiet")
    assert _run(*given).exit_code == 0
    assert _run("release", target).exit_code == 2
    assert _run("release", target, "--value", "1", "--value", "2").exit_code == 2
    wrong = _run("release", target, "--value", "secret")
    assert wrong.exit_code == 1
    assert "secret" not in wrong.output
    assert _run("release", target, "--database", "nowhere").exit_code == 1
    assert _run("release", saved, "--value", "1").exit_code == 1
    again = _run("noise", target, "--epsilon", "0.5", "--delta", "0.1")
    assert again.exit_code == 1
    assert "must hold an audit" in again.stderr


@pytest.mark.slow
def test_noise_for_many_publications(saved: str, tmp_path: Path) -> None:
    target, figures = tmp_path / "noise.empriv", tmp_path / "noise.json"
    options = ["--epsilon", "1", "--delta", "0.2", "--granularity", "0.25", "--times", "12"]
    shown = _run("noise", saved, *options, "--save", str(target), "--json", str(figures))
    assert shown.exit_code == 0, shown.output
    assert "after 12 publications" in shown.output
    said = json.loads(figures.read_text())
    assert said["times"] == 12
    assert said["achieved_delta"] <= 0.2
    assert empriv.load(target).times == 12
    refused = _run("noise", saved, "--epsilon", "1", "--delta", "0", "--granularity", "0.25", "--times", "12")
    assert refused.exit_code == 1
    assert "a delta above 0" in refused.output


@pytest.mark.slow
def test_an_answer_with_noise_has_a_page_and_is_shown_again(saved: str, tmp_path: Path) -> None:
    """`noise --report` and `show --noise` tell the same; noise that fits another audit is refused with code 3."""
    kept, page, again = (str(tmp_path / name) for name in ("noise.empriv", "noise.html", "again.html"))
    options = ("--epsilon", "0.5", "--delta", "0.1", "--granularity", "0.01", "--save", kept, "--report", page)
    made = _run("noise", saved, *options)
    assert made.exit_code == 0, made.output
    assert "in multiples of 0.01." in " ".join(made.output.split())
    shown = _run("show", saved, "--noise", kept, "--report", again)
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[0] == made.output.splitlines()[0]
    assert "Wrote again.html." in shown.output
    law = empriv.load(kept).law.words  # type: ignore[union-attr]
    assert all(law in Path(path).read_text() for path in (page, again))
    q = np.random.default_rng(0).normal(50, 8, 30)
    empriv.audit(empriv.Results.from_arrays(q, q[None] - 500.0)).save(tmp_path / "other.empriv")
    assert _run("show", str(tmp_path / "other.empriv"), "--noise", kept).exit_code == 3
    assert _run("show", saved, "--noise", saved).exit_code == 1
    assert _run("show", saved, "--noise", kept, "--target", "delta <= 0.1 at 0.1").exit_code == 2


def test_several_answers_are_read_from_standard_input_and_written_as_json(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(50.0, 8.0, 30)
    both = empriv.Results.stack(
        {name: empriv.Results.from_arrays(q + shift, q[None] + shift - 1.0) for name, shift in (("a", 0.0), ("b", 9.0))}
    )
    path, target = str(tmp_path / "noise.empriv"), tmp_path / "answer.json"
    empriv.design_noise(empriv.measure(both), epsilon=1.0, delta=0.0, granularity=0.25).save(path)
    released = _run("release", path, "--value", "-", "--json", str(target), text="b=7\na=-3\n")
    assert released.exit_code == 0, released.output
    answer = json.loads(target.read_text())["answer"]
    assert [repr(answer[name]) for name in ("a", "b")] == released.stdout.split()
    for wrong in ("", "a=1\n", "7\n"):
        assert _run("release", path, "--value", "-", text=wrong).exit_code != 0
    printed = _run("release", path, "--value", "-", "--json", "-", text="a=1\nb=2\n")
    assert set(json.loads(printed.stdout)["answer"]) == {"a", "b"}
