"""The page in headless Chromium: it says what the library holds, does what it says, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.report import write_report
from empriv.report.gather import gather
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
    made = write_report(
        ordinary, target, show_ids=True, verdicts=verdicts, advice=advice, config="[audit]\n", beside=True
    )
    return made.page


def test_the_first_screen_says_what_the_library_holds(
    ordinary: empriv.Audit, advice: empriv.Advice, page: Path, read: Any
) -> None:
    reader = read(page, viewport={"width": 1200, "height": 900}, folded=True)
    held = json.loads(page.with_suffix(".json").read_text())
    made = held["decision"]
    assert reader.texts(".decision p") == [made["line"], made["reason"], made["condition"]]
    assert held["advice"] == advice.to_json()
    best = advice.best
    assert best is not None
    assert best.code == "noise"
    assert made["line"] == f"Publish with noise (±{amount(best.error)} on a typical {amount(advice.typical)})"
    tried = {action["title"]: action for action in (*held["advice"]["options"], held["advice"]["classical"])}
    heads = [text.removesuffix(" least error") for text in reader.texts("#do ~ table tbody th")]
    assert heads[0] == best.title
    assert advice.classical is not None
    assert heads == [action.title for action in (*advice.of_each_kind(), advice.classical)]
    marks = {"pass": "● pass", "fail": "▲ fail", "unresolved": "◆ cannot tell"}
    for k, head in enumerate(heads):
        cells = reader.page.locator("#do ~ table tbody tr").nth(k).locator("td").all_inner_texts()
        action = tried[head]
        assert cells[0].startswith(number(action["delta"]))
        assert cells[1] == "none" or cells[1].startswith(f"±{amount(action['error'])} ")
        assert cells[2] == marks[action["verdict"]]
        assert cells[3] == action["command"]
    # what can be done is seen at once
    assert reader.page.locator("#do ~ table tr.best").bounding_box()["y"] < 900
    figures = ordinary.to_json([TARGET[0]])["figures"][0]
    cards = " ".join(reader.texts("main > .cards .card"))
    for figure in (figures["delta"], figures["delta_when_present"], TARGET[1]):
        assert number(figure) in cards
    drawn = reader.page.locator("#who ~ table tbody tr")
    order = np.argsort(-np.maximum(ordinary.delta_i(TARGET[0]), ordinary.when_present.delta_i(TARGET[0])))
    assert reader.texts("#who ~ table tbody th") == ordinary.results.individuals[order[:5]].tolist()
    influence = float(ordinary.risk.influence()[order[0]])
    cells = drawn.nth(0).locator("td").all_inner_texts()
    assert float(cells[2]) == pytest.approx(influence, rel=5e-3)
    assert cells[1] == number(float(ordinary.delta_i(TARGET[0])[order[0]]))
    delta_i = np.sort(ordinary.delta_i(TARGET[0]))[::-1]
    assert f"{100 * delta_i[:3].sum() / delta_i.sum():.2g}% in a random database" in reader.texts("#who ~ p")[0]
    often = ordinary.how_often(epsilon=TARGET[0], delta=TARGET[1])
    assert often.sentence in reader.page.inner_text("main")


def test_no_sentence_is_said_twice(page: Path, read: Any) -> None:
    reader = read(page)
    said = reader.texts("main p, main li, main figcaption, main td")
    long = [text for text in said if len(text) > 60]
    assert sorted(text for text in set(long) if long.count(text) > 1) == []
    assert reader.page.locator("nav.contents").count() == 1


def test_the_slider_shows_what_the_library_gives(ordinary: empriv.Audit, page: Path, read: Any) -> None:
    grid = gather(ordinary, targets=[TARGET]).epsilons
    reader = read(page)
    assert reader.texts("output [data-bind=epsilon]") == ["0.05"]  # the target's
    assert reader.texts(".ticks button") == ["0.05 (target)", "0.2"]
    seen = set()
    for stop in (0, 7, len(grid) - 1):
        reader.slide(stop)
        epsilon = float(grid[stop])
        assert reader.texts("[data-bind=delta]") == [number(ordinary.delta(epsilon), 3)]
        assert reader.texts("[data-bind=total_risk]") == [number(ordinary.total_risk(epsilon), 3)]
        assert f"{epsilon:g}"[:4] in reader.texts("[data-bind=sentence]")[0]
        exposed = int(np.count_nonzero(ordinary.delta_i(epsilon) > 0))
        assert reader.texts("[data-bind=exposed]") == [f"{exposed:,}"]
        by_name = dict(zip(ordinary.results.individuals, ordinary.delta_i(epsilon), strict=True))
        rows = reader.page.locator("#individuals tbody tr")
        assert rows.count() == 30
        for k in (0, 13, 29):
            cells = rows.nth(k).locator("td").all_inner_texts()
            assert cells[1] == number(float(by_name[cells[0]]), 3)
        seen.add(reader.texts("[data-bind=delta]")[0])
    assert len(seen) > 2  # a page that stands still would fail
    reader.page.click(".ticks button:has-text('0.2')")
    assert reader.texts("[data-bind=delta]") == [number(ordinary.delta(0.2), 3)]
    assert reader.noises == []


def test_the_slider_moves_every_chart_that_has_an_epsilon(page: Path, read: Any) -> None:
    reader = read(page)
    moving = ("delta", "total_risk", "density", "delta_i", "influence", "sensitivity")

    def drawn() -> dict[str, str]:
        return {name: reader.page.locator(f"figure[data-chart={name}] svg").inner_html() for name in moving}

    before = drawn()
    reader.slide(30)
    after = drawn()
    assert [name for name in moving if before[name] == after[name]] == []


def test_the_script_draws_what_vega_drew(page: Path, read: Any) -> None:
    """At the first epsilon, marks that the script has put in place lie where vl-convert put them."""
    still, live = read(page, java_script_enabled=False), read(page)

    def heights(reader: Any) -> list[float]:
        paths = reader.page.locator("figure[data-chart=delta_i] .bars_marks path")
        return [float(path.get_attribute("d").split(",")[1].split("h")[0]) for path in paths.all()]

    assert heights(live) == pytest.approx(heights(still), abs=0.01)

    def cursor(reader: Any) -> float:
        line = reader.page.locator("figure[data-chart=delta] .cursor_marks line")
        return float(line.get_attribute("transform").split("(")[1].split(",")[0])

    assert cursor(live) == pytest.approx(cursor(still), abs=1.0)  # Vega puts rules on whole pixels
    live.slide(20)
    assert abs(cursor(live) - cursor(still)) > 5
    # without script all is there to read
    assert still.page.locator(".decision .line").is_visible()
    assert still.page.locator("figure[data-chart=results] svg").is_visible()
    assert not still.page.is_visible("#epsilon")


def test_charts_say_what_the_pointer_is_on(ordinary: empriv.Audit, page: Path, read: Any) -> None:
    reader = read(page)
    chart = reader.page.locator("figure[data-chart=results] svg")
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": chart.bounding_box()["width"] - 6, "y": 60})
    last = ordinary.results.databases[-1]
    assert reader.texts("#tip")[0].startswith(f"{last}: {ordinary.results.q[-1]:.4g}"[:6])
    reader.page.mouse.move(1, 1)
    assert not reader.page.is_visible("#tip")


def test_search_and_sort(ordinary: empriv.Audit, page: Path, read: Any) -> None:
    reader = read(page)
    reader.page.fill("#individuals input[type=search]", "CLIENT 2")
    names = reader.texts("#individuals tbody td:first-child")
    assert sorted(names) == sorted(f"client {k}" for k in (2, *range(20, 30)))
    reader.page.fill("#individuals input[type=search]", "nobody of that name")
    assert reader.texts("#individuals tbody td") == []
    reader.page.fill("#individuals input[type=search]", "")
    reader.page.click("th button[data-key=influence]")
    assert reader.page.get_attribute("th:has(button[data-key=influence])", "aria-sort") == "descending"
    shown = [float(text.replace(",", "")) for text in reader.texts("#individuals tbody td:nth-child(3)")]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(float(ordinary.risk.influence().max()), rel=1e-4)
    reader.page.click("th button[data-key=influence]")
    again = [float(text.replace(",", "")) for text in reader.texts("#individuals tbody td:nth-child(3)")]
    assert again == sorted(shown)
    reader.page.click("th button[data-key=name]")
    names = reader.texts("#individuals tbody td:first-child")
    assert names == sorted(names)


def test_keyboard_and_click_move_epsilon(page: Path, read: Any) -> None:
    reader = read(page, folded=True)
    first = reader.texts("output [data-bind=epsilon]")
    reader.page.focus("#epsilon")
    reader.page.keyboard.press("ArrowRight")
    second = reader.texts("output [data-bind=epsilon]")
    assert second != first
    assert reader.page.get_attribute("#epsilon", "aria-valuetext") == f"epsilon {second[0]}"
    box = reader.page.locator("figure[data-chart=delta] svg").bounding_box()
    reader.page.locator("figure[data-chart=delta] svg").click(position={"x": 0.8 * box["width"], "y": 60})
    assert float(reader.texts("output [data-bind=epsilon]")[0]) > float(second[0])
    # a link of the contents opens what is folded
    reader.page.focus("nav.contents a[href='#record']")
    reader.page.keyboard.press("Enter")
    assert reader.page.is_visible("#record dd >> nth=0")


def test_pages_of_a_long_table(tmp_path: Path, read: Any) -> None:
    audit = empriv.audit(results(n=35, m=120))
    reader = read(write_report(audit, tmp_path / "r.html", epsilons=[0.05]).page)
    assert "page 1 of 3" in reader.texts("[data-count]")[0]
    reader.page.click("nav button:has-text('Next')")
    reader.page.click("nav button:has-text('Next')")
    assert len(reader.texts("#individuals tbody tr")) == 20
    assert reader.page.is_disabled("nav button:has-text('Next')")
    # nobody gave a target
    assert reader.texts(".decision .line") == [audit.decision().line]
    assert reader.page.locator("#do").count() == 0


def test_nothing_leaves_the_page(page: Path, read: Any) -> None:
    reader = read(page)
    reader.slide(3)
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
    for part in (".decision .line", "#do ~ table tr.best", ".sign"):
        box = reader.page.locator(part).bounding_box()
        assert box["y"] + box["height"] < A4[1]
    assert reader.page.locator("#who").evaluate("head => getComputedStyle(head.parentElement).breakBefore") == "page"
    assert not reader.page.is_visible("#epsilon")
    assert reader.page.is_visible("figure[data-chart=delta] svg")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_accessible_and_whole(page: Path, read: Any, axe: str, scheme: str, width: int) -> None:
    reader = read(page, color_scheme=scheme, viewport={"width": width, "height": 900})
    # a table behind a chart is looked at too
    reader.page.evaluate("() => { document.querySelector('figure[data-chart=delta_i] details').open = true; }")
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
