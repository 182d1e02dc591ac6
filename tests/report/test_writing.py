"""What is written: the page's size and words, the key, the files beside it, the version to publish."""

from __future__ import annotations

import json
import re
from html import unescape
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import empriv
from empriv import datasets
from empriv.auditing.summary import with_validity
from empriv.base.text import pseudonyms, script_json, visible
from empriv.errors import InputError
from empriv.report import gather as gathering
from empriv.report import notebook_html, write_report
from empriv.report.page.public import coarse_down, coarse_up
from empriv.words.sentences import number
from report.cases import NASTY, extreme, results

SCHEMA = json.loads((files("empriv.report") / "schema.json").read_text(encoding="utf-8"))


def words_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return unescape(re.sub(r"<[^>]+>", " ", text[: text.index('<script type="application/json"')]))


@pytest.mark.slow
def test_the_page_says_what_the_terminal_says(ordinary: empriv.Audit, tmp_path: Path) -> None:
    said = with_validity(ordinary, ordinary.summary())
    text = words_of(write_report(ordinary, tmp_path / "r.html").page)
    for sentence in (said.asked, *said.alarms, *said.warnings, *said.notes):
        assert sentence in text
    for check in ordinary.checks:
        assert check.sentence in text


@pytest.mark.slow
def test_pseudonyms_and_their_key(ordinary: empriv.Audit, tmp_path: Path) -> None:
    made = write_report(ordinary, tmp_path / "r.html", beside=True)
    assert made.key is not None
    assert made.individuals is not None
    for path in (made.page, made.key, made.individuals):
        assert path.stat().st_mode & 0o777 == 0o600
    assert "client" not in made.page.read_text(encoding="utf-8").replace("clientX", "")
    key = json.loads(made.key.read_text(encoding="utf-8"))
    assert sorted(key["individuals"].values()) == sorted(ordinary.results.individuals.tolist())
    assert pseudonyms(["client 3"], bytes.fromhex(key["salt"]))[0] in key["individuals"]
    table = parquet.read_table(made.individuals).to_pydict()
    position = {label: k for k, label in enumerate(ordinary.results.individuals)}
    rows = [position[key["individuals"][name]] for name in table["individual"]]
    assert table["delta_i at 0.05"] == pytest.approx(ordinary.delta_i(0.05)[rows])
    assert table["largest_influence"] == pytest.approx(ordinary.risk.influence()[rows])
    # another report has other names
    again = write_report(ordinary, tmp_path / "s.html")
    assert again.key is not None
    assert not set(json.loads(again.key.read_text(encoding="utf-8"))["individuals"]) & set(key["individuals"])
    shown = write_report(ordinary, tmp_path / "t.html", show_ids=True)
    assert shown.key is None
    assert '<th scope="row">client ' in shown.page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ordinary", "nulls", "atoms", "three databases"])
def test_figures_fit_the_schema(name: str, tmp_path: Path) -> None:
    audit = empriv.audit(results()) if name == "ordinary" else extreme(name)
    verdict = audit.verdict(epsilon=0.05, delta=0.5)
    made = write_report(
        audit, tmp_path / "r.html", beside=True, verdicts=[("delta <= 0.5 at 0.05", verdict)], config="top = 5\n"
    )
    assert made.json is not None
    assert made.config is not None
    figures = json.loads(made.json.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(figures)
    assert made.config.read_text(encoding="utf-8") == "top = 5\n"
    for broken in ({**figures, "version": 2}, {**figures, "curves": [{"epsilon": 0.1}]}, {"format": "other"}):
        assert not validator.is_valid(broken)
    assert figures["curves"][0]["delta"] == pytest.approx(audit.delta(figures["curves"][0]["epsilon"]), rel=1e-9)


def test_to_publish(ordinary: empriv.Audit, tmp_path: Path) -> None:
    verdict = ordinary.verdict(epsilon=0.05, delta=0.01)
    made = write_report(ordinary, tmp_path / "p.html", public=True, verdicts=[("delta <= 0.01 at 0.05", verdict)])
    assert list(tmp_path.iterdir()) == [made.page]
    text = made.page.read_text(encoding="utf-8")
    figures = gathering.gather(ordinary)
    exact = {number(float(v), 3) for v in figures.curves.delta if 0 < v < 1}
    exact |= {f"{v:.5g}" for v in ordinary.results.q} | {f"{v:.5g}" for v in ordinary.risk.influence()}
    exact |= {f"{ordinary.risk.density.bandwidth:.6g}"}
    body = words_of(made.page) + text[text.index('<script type="application/json"') : text.index("<script>")]
    tokens = set(re.findall(r"[-\d.e]+", body))
    assert not exact & tokens
    assert "client" not in body
    # rounded up: never less private than measured
    said = re.search(r'delta, estimate">([^<]+)<', text)
    assert said is not None
    assert float(said[1].lstrip(">")) >= ordinary.delta(0.05)
    with pytest.raises(InputError, match="`public` must not go with"):
        write_report(ordinary, tmp_path / "q.html", public=True, show_ids=True)


@given(st.floats(0.0, 1.0))
def test_coarse_figures_round_to_the_private_side(value: float) -> None:
    assert coarse_down(value) <= value * (1 + 1e-9)
    assert coarse_up(value) >= value * (1 - 1e-9)
    assert coarse_up(value) <= 2.5 * value * (1 + 1e-9) or value < 1e-12


@pytest.mark.slow
@given(st.text())
def test_json_in_a_script_is_only_json(text: str) -> None:
    said = script_json({text: [text]})
    assert not set("<>&\u2028\u2029") & set(said)
    assert json.loads(said) == {text: [text]}
    assert visible(visible(text)) == visible(text)


@pytest.mark.slow
def test_size_of_the_precipitation_report(tmp_path: Path) -> None:
    made = datasets.precipitation()
    held = empriv.Results.from_arrays(made.q, made.q_without, individuals=made.individuals, databases=made.databases)
    audit = empriv.audit(held, epsilon=[0.05, 0.1])
    path = write_report(audit, tmp_path / "r.html", epsilons=np.linspace(0.004, 0.2, 50)).page
    assert path.stat().st_size < 3_000_000


@pytest.mark.slow
def test_of_many_the_riskiest_are_listed(
    ordinary: empriv.Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_ROWS", 20)
    monkeypatch.setattr(gathering, "TOP_ROWS", 5)
    monkeypatch.setattr(gathering, "_AT_ONCE", 100)  # a few epsilons at a time
    made = write_report(ordinary, tmp_path / "r.html", show_ids=True, beside=True)
    assert made.individuals is not None
    listed = parquet.read_table(made.individuals).to_pydict()["individual"]
    riskiest = ordinary.individuals(0.05, top=5)["individual"].tolist()
    assert set(riskiest) <= set(listed)
    assert set(listed) == {*riskiest, *ordinary.moved(top=5, show_ids=True).individual}


def test_notebook(ordinary: empriv.Audit) -> None:
    text = notebook_html(ordinary)
    assert "<svg" in text
    assert all(sentence in unescape(text) for sentence in ordinary.decision().sentences)
    object.__setattr__(bad := empriv.audit(results()), "query", NASTY[0])
    assert "<script" not in notebook_html(bad)


def test_wrong_use_is_said(ordinary: empriv.Audit, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`path` must end in \.html"):
        write_report(ordinary, tmp_path / "r.pdf")
