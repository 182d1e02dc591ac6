"""Who and when, the statistic and the promise in a real browser: by the keyboard alone, narrow, back and reload."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.conftest import PATIENCE, RunningDesk
from empriv.cli.config import read_config

pytestmark = pytest.mark.browser
HOSTILE = "<script>document.title='hit'</script>\"'`${1}" + "w" * 200


@pytest.fixture
def tab(browser: Any, desk: RunningDesk) -> Iterator[Any]:
    """A narrow tab, which notes what a page must not do."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.noises = []
    page.on("console", lambda said: page.noises.append(said.text) if "400" not in said.text else None)
    page.on("pageerror", lambda error: page.noises.append(str(error)))
    page.goto(desk.address)
    yield page
    assert page.noises == []
    context.close()


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def reach(page: Any, selector: str) -> None:
    """Go to an element by the tab key alone."""
    for _ in range(120):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"The keyboard does not reach {selector}.")


def is_accessible(page: Any, axe: str) -> None:
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.title() != "hit"


def test_by_the_keyboard_alone_with_hostile_names_on_a_phone(desk: RunningDesk, tab: Any, axe: str) -> None:
    quoted = HOSTILE.replace('"', '""')
    rows = "".join(f'p{k % 9},2024-01-{1 + k % 31:02},{k % 13},"{"<b>x" if k % 2 else "y"}"\n' for k in range(310))
    (desk.folder / "rows.csv").write_text(f'client,day,amount,"{quoted}"\n{rows}')
    (desk.folder / "rows.toml").write_text('files = ["rows.csv"]')
    at = desk.at("/audits/rows")

    tab.goto(f"{at}/people")
    tab.get_by_text("31 days, 9 people: enough for delta ≥ 0.092.").wait_for()
    is_accessible(tab, axe)
    reach(tab, "[name=way]")
    press(tab, "ArrowDown")  # a week is a database
    tab.get_by_text("5 weeks, 9 people").wait_for()
    tab.get_by_text("no upper bound").first.wait_for()
    press(tab, "ArrowUp", "Enter")

    tab.wait_for_url(f"{at}/statistic")
    tab.get_by_text("avg(amount)", exact=True).wait_for()
    reach(tab, "[name=measure]")
    press(tab, "ArrowDown")  # a sum
    reach(tab, "[name=by]")
    tab.keyboard.type("<script>")
    reach(tab, "[name=where_column]")
    tab.keyboard.type("amount")
    reach(tab, "[name=where_value]")
    tab.keyboard.type("many")
    beside = tab.locator(".condition").filter(has=tab.locator("[name=where_value]")).locator(".wrong")
    beside.get_by_text("Condition 1 must be a number").wait_for()
    press(tab, "Enter")
    tab.locator("#wrong-where_0").wait_for()
    assert tab.input_value("[name=where_value] >> nth=0") == "many"
    is_accessible(tab, axe)
    reach(tab, "[name=where_value]")
    press(tab, "Control+a")
    tab.keyboard.type("5")
    tab.get_by_text("It gives a table of 2 numbers").wait_for()
    press(tab, "Enter")

    tab.wait_for_url(f"{at}/promise")
    tab.get_by_text("That holds for readers who may know").wait_for()
    tab.get_by_text("31 databases cannot support any delta below 0.092").wait_for()
    is_accessible(tab, axe)
    reach(tab, "[name=preset]")
    press(tab, "ArrowDown")
    tab.get_by_text("In the file: delta <= 0.1 at 0.2").wait_for()
    reach(tab, "[name=times]")
    press(tab, "Control+a")
    tab.keyboard.type("12")
    tab.get_by_text("for 12 publications together").wait_for()
    press(tab, "Enter")
    tab.wait_for_url(f"{at}/run")

    written = read_config(desk.folder / "rows.toml")
    assert written["query"] == (f'SELECT "{quoted}", sum(amount) FROM data WHERE amount = 5 GROUP BY "{quoted}"',)
    assert (written["target"], written["times"]) == (("delta <= 0.1 at 0.2",), 12)

    tab.go_back()  # each step shows what was chosen, after going back and after a reload
    tab.reload()
    assert tab.is_checked("[name=preset][value=lenient]")
    tab.goto(f"{at}/statistic")
    assert tab.is_checked("[name=measure][value=sum]")
    assert tab.input_value("[name=where_value] >> nth=0") == "5"
    memory = json.loads((desk.folder / ".empriv-app" / "built" / "rows.json").read_text())
    assert list(memory) == list(written["query"])


def test_day_and_month_are_asked_for(desk: RunningDesk, tab: Any, axe: str) -> None:
    rows = "".join(f"p{k % 9},0{1 + k % 9}/0{1 + k % 4}/2024,{k}\n" for k in range(90))
    (desk.folder / "swapped.csv").write_text(f"client,<i>day</i>,amount\n{rows}")
    (desk.folder / "swapped.toml").write_text('files = ["swapped.csv"]')
    tab.goto(desk.at("/audits/swapped/data"))
    tab.get_by_text("Dates must tell the day from the month").wait_for()
    is_accessible(tab, axe)
    reach(tab, "button[value=month]")
    press(tab, "Enter")
    tab.get_by_text("36 days, 9 people").wait_for()
    assert (desk.folder / "swapped-dates.csv").is_file()
