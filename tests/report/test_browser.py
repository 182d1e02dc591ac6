"""The page in headless Chromium: it says what the library holds, does what it says, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import empriv
from empriv.report import write_report
from empriv.words.sentences import amount, number
from report.cases import results

A4 = (688, 1017)  # pixels inside the margins of the paper
TARGET = (0.05, 0.01)
SMALL_LETTERS = """() => [...document.querySelectorAll("figure svg text")].filter(text => text.getScreenCTM())
    .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a).filter(size => size < 11)"""
CUT = """() => [...document.querySelectorAll("main p, main li, main th, main td, main h2, main h3, main code, main dd")]
    .filter(part => part.getClientRects().length && !part.closest(".scroll, .unseen, thead"))
    .filter(part => part.getBoundingClientRect().right > window.innerWidth + 1
        || part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 1)
    .map(part => part.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def advice(ordinary: empriv.Audit) -> empriv.Advice:
    return empriv.advise(ordinary, epsilon=TARGET[0], delta=TARGET[1])


@pytest.fixture(scope="module")
def page(ordinary: empriv.Audit, advice: empriv.Advice, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("report") / "audit.html"
    verdicts = [("delta <= 0.01 at 0.05", ordinary.verdict(epsilon=TARGET[0], delta=TARGET[1]))]
    return write_report(ordinary, target, show_ids=True, verdicts=verdicts, advice=advice).page


def test_the_first_screen_says_what_the_library_holds(
    ordinary: empriv.Audit, advice: empriv.Advice, page: Path, read: Any
) -> None:
    reader = read(page, viewport={"width": 1200, "height": 900}, folded=True)
    made = ordinary.decision(ordinary.verdict(epsilon=TARGET[0], delta=TARGET[1])).to_json()
    said = reader.texts(".decision p:not(.small)")
    assert said[:2] == [made["line"], made["reason"]]
    assert reader.texts(".decision .small") == [f"{made['beyond']} {made['condition']}"]
    best = advice.best
    assert best is not None
    tried = {action["title"]: action for action in (*advice.to_json()["options"], advice.to_json()["classical"])}
    heads = [text.removesuffix(" recommended") for text in reader.texts("#do ~ table tbody th")]
    assert heads[0] == best.title
    assert advice.classical is not None
    marks = {"pass": "● pass", "fail": "▲ fail", "unresolved": "◆ cannot tell"}
    for k, head in enumerate(heads):
        cells = reader.page.locator("#do ~ table tbody tr").nth(k).locator("td").all_inner_texts()
        action = tried[head]
        assert cells[1] == "none" or cells[1].startswith(f"±{amount(action['error'])} ")
        assert cells[2] == marks[action["verdict"]]
    # decision, picture and what can be done are seen at once
    for part in (".decision .small", "figure[data-chart=moves] svg", "#do ~ table tr.best"):
        box = reader.page.locator(part).bounding_box()
        assert box["y"] + box["height"] < 900
    verdict = ordinary.verdict(epsilon=TARGET[0], delta=TARGET[1])
    assert f"({verdict.day.beyond / verdict.day.days:.2%}"[:4] in reader.page.inner_text("figure[data-chart=moves]")
    moved = ordinary.moved(top=5, show_ids=True)
    assert reader.texts("#who ~ table tbody th") == list(moved.individual)
    cells = reader.page.locator("#who ~ table tbody tr").nth(0).locator("td").all_inner_texts()
    assert (cells[0], cells[2]) == (amount(float(moved.moved[0])), str(moved.database[0]))


def test_the_first_screen_has_at_most_sixty_words(page: Path, read: Any) -> None:
    said = read(page).texts(".decision p:not(.small)")
    assert len(" ".join(said).split()) <= 60


@pytest.mark.slow
def test_answers_are_shown_only_if_asked_for(ordinary: empriv.Audit, tmp_path: Path) -> None:
    inside, asked = (
        write_report(ordinary, tmp_path / f"{answers}.html", answers=answers).page.read_text()
        for answers in (False, True)
    )
    assert "Keep this page inside" in inside
    said = [f"{label}: {amount(float(value))}" for label, value in zip(
        ordinary.results.databases, ordinary.results.q, strict=True)]  # fmt: skip
    assert not any(value in inside for value in said)
    assert all(value in asked for value in said)
    assert 'data-chart="results"' not in inside


def test_no_sentence_is_said_twice(page: Path, read: Any) -> None:
    reader = read(page)
    said = reader.texts("main p, main li, main figcaption, main td")
    long = [text for text in said if len(text) > 60]
    assert sorted(text for text in set(long) if long.count(text) > 1) == []


def test_the_page_shows_what_the_library_gives(ordinary: empriv.Audit, page: Path, read: Any) -> None:
    reader = read(page)
    epsilon = TARGET[0]
    assert ordinary.summary([epsilon]).sentences[0] in reader.texts("#statistician > p")
    for k, asked in enumerate(ordinary.epsilons):
        row = reader.page.locator("table.asked tbody tr").nth(k).locator("td").all_inner_texts()
        assert row[2] == number(ordinary.delta(asked), 3)
    assert reader.noises == []
    # without script all is there to read
    still = read(page, java_script_enabled=False)
    assert still.page.locator(".decision .line").is_visible()
    assert still.page.locator("figure[data-chart=moves] svg").is_visible()


def test_charts_say_what_the_pointer_is_on(page: Path, read: Any) -> None:
    reader = read(page)
    chart = reader.page.locator("figure[data-chart=delta] svg")
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": chart.bounding_box()["width"] - 6, "y": 60})
    assert reader.texts("#tip")[0].startswith("epsilon ")
    reader.page.mouse.move(1, 1)
    assert not reader.page.is_visible("#tip")


def test_the_keyboard_opens_what_is_folded(page: Path, read: Any) -> None:
    reader = read(page, folded=True)
    reader.page.focus("#record summary")
    reader.page.keyboard.press("Enter")
    assert reader.page.is_visible("#record dd >> nth=0")


def test_nobody_gave_a_target(tmp_path: Path, read: Any) -> None:
    audit = empriv.audit(results(n=35, m=120))
    reader = read(write_report(audit, tmp_path / "r.html").page)
    assert reader.texts(".decision .line") == [audit.decision().line]
    assert reader.page.locator("#do").count() == 0


def test_nothing_leaves_the_page(page: Path, read: Any) -> None:
    reader = read(page)
    assert reader.requests == [page.as_uri()]
    text = page.read_text(encoding="utf-8")
    policy = reader.page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # the policy is in force: a script that is not the page's own does not run
    bad = page.with_name("bad.html")
    bad.write_text(text.replace("</body>", "<script>document.title = 'ran'</script></body>"), encoding="utf-8")
    assert read(bad).page.title() != "ran"


def test_it_prints_on_two_pages_of_which_the_first_can_be_signed(page: Path, read: Any) -> None:
    reader = read(page, folded=True)
    content = reader.page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type /Page\b", content)) == 2
    reader.page.set_viewport_size({"width": A4[0], "height": A4[1]})
    reader.page.emulate_media(media="print")
    for part in (".decision .line", "figure[data-chart=moves]", "#do ~ table tr.best", "#warnings", ".sign"):
        box = reader.page.locator(part).bounding_box()
        assert box["y"] + box["height"] < A4[1]
    assert reader.texts(".sign div") == [
        "Name and role, for the controller", "Signature", "Date",
        "Reason for accepting what is not a pass, and who agreed", "To be reviewed by",
    ]  # fmt: skip


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_accessible_and_whole(page: Path, read: Any, axe: str, scheme: str, width: int) -> None:
    reader = read(page, color_scheme=scheme, viewport={"width": width, "height": 900})
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert reader.page.evaluate(CUT) == []
    assert reader.page.evaluate(SMALL_LETTERS) == []
    reader.page.evaluate(f"() => {{ {axe} }}")
    found = reader.page.evaluate("async () => (await axe.run()).violations")
    assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []
    # it would find one, and so would the looks at cut text and small letters
    reader.page.evaluate("() => document.querySelector('main').append(document.createElement('input'))")
    found = reader.page.evaluate("async () => (await axe.run('main > input')).violations")
    assert any(one["impact"] in ("serious", "critical") for one in found)
    reader.page.evaluate("() => { document.querySelector('.decision .line').style.minWidth = '2000px'; }")
    assert len(reader.page.evaluate(CUT)) > 0
    reader.page.evaluate("() => { document.querySelector('figure svg').style.width = '90px'; }")
    assert len(reader.page.evaluate(SMALL_LETTERS)) > 0
