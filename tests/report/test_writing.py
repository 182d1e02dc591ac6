"""What is written: the page's size and words, and the key beside it."""

from __future__ import annotations

import json
import re
from html import unescape
from importlib.resources import files
from pathlib import Path

import jsonschema
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
    made = write_report(ordinary, tmp_path / "r.html")
    assert made.key is not None
    for path in (made.page, made.key):
        assert path.stat().st_mode & 0o777 == 0o600
    assert "client" not in made.page.read_text(encoding="utf-8").replace("clientX", "")
    key = json.loads(made.key.read_text(encoding="utf-8"))
    assert sorted(key["individuals"].values()) == sorted(ordinary.results.individuals.tolist())
    assert pseudonyms(["client 3"], bytes.fromhex(key["salt"]))[0] in key["individuals"]
    # another report has other names
    again = write_report(ordinary, tmp_path / "s.html")
    assert again.key is not None
    assert not set(json.loads(again.key.read_text(encoding="utf-8"))["individuals"]) & set(key["individuals"])
    shown = write_report(ordinary, tmp_path / "t.html", show_ids=True)
    assert shown.key is None
    assert '<th scope="row">client ' in shown.page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ordinary", "nulls", "atoms", "three databases"])
def test_figures_fit_the_schema(name: str) -> None:
    audit = empriv.audit(results()) if name == "ordinary" else extreme(name)
    figures = json.loads(json.dumps(audit.to_json(), allow_nan=False))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(figures)
    for broken in ({**figures, "version": 2}, {**figures, "figures": [{"epsilon": 0.1}]}, {"format": "other"}):
        assert not validator.is_valid(broken)


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
    path = write_report(audit, tmp_path / "r.html").page
    assert path.stat().st_size < 3_000_000


@pytest.mark.slow
def test_of_many_the_riskiest_are_listed(
    ordinary: empriv.Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_ROWS", 20)
    monkeypatch.setattr(gathering, "TOP_ROWS", 5)
    monkeypatch.setattr(gathering, "_AT_ONCE", 100)  # a few epsilons at a time
    made = write_report(ordinary, tmp_path / "r.html")
    assert made.key is not None
    listed = json.loads(made.key.read_text(encoding="utf-8"))["individuals"].values()
    riskiest = ordinary.individuals(0.05, top=5)["individual"].tolist()
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
