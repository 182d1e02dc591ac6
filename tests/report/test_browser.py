"""The page in headless Chromium: it does what it says, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.report import write_report
from empriv.report.gather import gather
from empriv.words.sentences import number
from report.cases import results


@pytest.fixture(scope="module")
def page(ordinary: empriv.Audit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("report") / "audit.html"
    verdict = ordinary.verdict(epsilon=0.05, delta=0.01)
    return write_report(ordinary, target, show_ids=True, verdicts=[("delta <= 0.01 at 0.05", verdict)]).page


def test_the_slider_shows_what_the_library_gives(ordinary: empriv.Audit, page: Path, read: Any) -> None:
    grid = gather(ordinary).epsilons
    reader = read(page)
    seen = set()
    for stop in (0, 7, len(grid) // 2, len(grid) - 1):
        reader.slide(stop)
        epsilon = float(grid[stop])
        assert reader.texts("[data-bind=delta]") == [number(ordinary.delta(epsilon), 3)]
        assert reader.texts("[data-bind=total_risk]") == [number(ordinary.total_risk(epsilon), 3)]
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
    assert reader.noises == []


def test_the_slider_moves_every_chart(page: Path, read: Any) -> None:
    reader = read(page)
    moving = ("delta", "total_risk", "density", "delta_i", "influence", "sensitivity")

    def drawn() -> dict[str, str]:
        return {name: reader.page.locator(f"figure[data-chart={name}] svg").inner_html() for name in moving}

    before = drawn()
    reader.slide(30)
    after = drawn()
    assert [name for name in moving if before[name] == after[name]] == []
    reader.slide(0)
    assert drawn() != after


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
    reader = read(page)
    first = reader.texts("output [data-bind=epsilon]")
    reader.page.focus("#epsilon")
    reader.page.keyboard.press("ArrowRight")
    second = reader.texts("output [data-bind=epsilon]")
    assert second != first
    assert reader.page.get_attribute("#epsilon", "aria-valuetext") == f"epsilon {second[0]}"
    box = reader.page.locator("figure[data-chart=delta] svg").bounding_box()
    reader.page.locator("figure[data-chart=delta] svg").click(position={"x": 0.8 * box["width"], "y": 60})
    assert float(reader.texts("output [data-bind=epsilon]")[0]) > float(second[0])


def test_pages_of_a_long_table(tmp_path: Path, read: Any) -> None:
    audit = empriv.audit(results(n=35, m=120))
    reader = read(write_report(audit, tmp_path / "r.html", epsilons=[0.05]).page)
    assert "page 1 of 3" in reader.texts("[data-count]")[0]
    reader.page.click("nav button:has-text('Next')")
    reader.page.click("nav button:has-text('Next')")
    assert len(reader.texts("#individuals tbody tr")) == 20
    assert reader.page.is_disabled("nav button:has-text('Next')")


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


def test_without_javascript(page: Path, read: Any) -> None:
    reader = read(page, java_script_enabled=False)
    assert reader.page.locator("figure svg").count() >= 8
    assert reader.page.locator("figure svg").first.is_visible()
    assert not reader.page.is_visible("#epsilon")
    assert len(reader.texts("#individuals tbody tr")) == 30
    assert "UNRESOLVED on delta <= 0.01" in reader.page.inner_text("main")


def test_it_prints(page: Path, read: Any) -> None:
    reader = read(page)
    content = reader.page.pdf(format="A4")
    assert content.startswith(b"%PDF")
    reader.page.emulate_media(media="print")
    assert not reader.page.is_visible("#epsilon")
    assert not reader.page.is_visible("#individuals input")
    assert reader.page.is_visible("figure[data-chart=delta] svg")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 1100), ("light", 360)])
def test_accessible(page: Path, read: Any, axe: str, scheme: str, width: int) -> None:
    reader = read(page, color_scheme=scheme, viewport={"width": width, "height": 900})
    # a table behind a chart is looked at too
    reader.page.evaluate("() => { document.querySelector('figure[data-chart=delta_i] details').open = true; }")
    reader.page.evaluate(f"() => {{ {axe} }}")
    found = reader.page.evaluate("async () => (await axe.run()).violations")
    grave = [(one["id"], len(one["nodes"])) for one in found if one["impact"] in ("serious", "critical")]
    assert grave == []
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    # it would find one
    reader.page.evaluate("() => document.querySelector('main').append(document.createElement('input'))")
    found = reader.page.evaluate("async () => (await axe.run('main > input')).violations")
    assert any(one["impact"] in ("serious", "critical") for one in found)


def test_several_audits(ordinary: empriv.Audit, tmp_path: Path, read: Any) -> None:
    other = empriv.audit(results(n=50, m=10, seed=3), epsilon=[0.1])
    reader = read(empriv.compare({"one": ordinary, "other": other}).report(tmp_path / "c.html"))
    reader.slide(0)
    assert reader.texts("[data-bind=delta0]") == [number(ordinary.delta(0.0), 3)]
    assert reader.texts("[data-bind=total1]") == [number(other.total_risk(0.0), 3)]
    assert reader.noises == []
