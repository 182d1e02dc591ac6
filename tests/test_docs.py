"""The documents: what they show is run, what they name exists, and their links lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import empriv
from documents import blocks, commands, names_on_a_page, prepare_shop, rewrite_page, run_page
from loading import module_at

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("reference/*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]


def _name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def names(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A copy of the files as the present directory, and the names that fragments on a page take as given."""
    shutil.copytree(prepared, tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    return names_on_a_page(Path())


@pytest.mark.slow
@pytest.mark.parametrize("page", [one for one in PAGES if blocks(one.read_text())], ids=_name_of)
def test_what_a_page_shows_is_so(page: Path, names: dict[str, Any]) -> None:
    run_page(page.read_text(), names)


FENCE = "```"
LIES = {
    "a figure": f"{FENCE}pycon\n>>> 1 + 1\n3\n{FENCE}\n",
    "output": f"{FENCE}console\n$ empriv ledger init a.ledger --epsilon 1 --delta 1\nMade nothing.\n{FENCE}\n",
    "a name": f"{FENCE}python\nempriv.nothing\n{FENCE}\n",
    "an option": f"{FENCE}console\n$ empriv demo --nothing\n{FENCE}\n",
    "a file": f"{FENCE}console\n$ empriv show nothing.empriv\n{FENCE}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_page_that_is_wrong_is_noticed(lie: str, names: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, AttributeError)):
        run_page(LIES[lie], names)


@pytest.mark.slow
def test_output_on_a_page_is_put_right(names: dict[str, Any]) -> None:
    page = f"{FENCE}pycon\n>>> print('a\\nb\\nc')\na\n...\nd\n>>> 1 + 1\n2\n{FENCE}\n"
    assert rewrite_page(page, names) == page.replace("\nd\n", "\nc\n")
    console = "$ empriv ledger init a.ledger --epsilon 1 --delta 1\n"
    (line,) = rewrite_page(f"{FENCE}console\n{console}Made nothing.\n{FENCE}\n", names).splitlines()[2:-1]
    assert line.startswith("Made a.ledger")


def test_blocks_and_commands_are_read_as_they_are_meant() -> None:
    shown = {language: f"{FENCE}{language}\nx = 1\n{FENCE}\n" for language in ("python", "toml")}
    page = f"<!-- not run: needs a cluster -->\n{shown['python']}\n{shown['toml']}\n{shown['python']}"
    assert [(one.line, one.text, one.reason) for one in blocks(page)] == [
        (2, "x = 1\n", "needs a cluster"),
        (10, "x = 1\n", None),
    ]
    console = '$ make demo  # no\n$ empriv audit x \\\n  --query "a b"\nsaid\n$ echo 1 | empriv release n -\n'
    found = list(commands(console))
    assert [one.words for one in found] == [("audit", "x", "--query", "a b"), ("release", "n", "-")]
    assert [(one.given, one.shown) for one in found] == [(None, "said"), ("1\n", "")]


@pytest.mark.parametrize("page", LINKED, ids=_name_of)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    """As GitHub reads them; the site's own are checked by its build."""
    for target in _links(page.read_text()):
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file.read_text()), target


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    assert _links("[a](b.md#c) ![d](e.png) [f](https://g.h) `[i](j)`") == ["b.md#c", "e.png"]
    assert _anchors("# A `b`, c\n\n## D\n") == {"a-b-c", "d"}


def test_the_readme_of_a_package_index_has_whole_addresses_or_none() -> None:
    setup = module_at(ROOT / "setup.py")
    for text in (setup.readme_for_an_index(), setup.readme_for_an_index(setup.address_of_the_source())):
        assert _links(text) == []
        assert "Known limits" in text

    home = "https://host.invalid/project"
    text = setup.readme_for_an_index(home)
    assert _links(text) == []
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    pages = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+)\)", text)
    assert images
    for folder, links in {"raw": images, "blob": pages}.items():
        local = [link for link in links if link.startswith(home)]
        assert local
        for link in local:
            assert (ROOT / link.removeprefix(f"{home}/{folder}/main/").partition("#")[0]).exists(), link


def test_addresses_of_the_project_are_in_one_place() -> None:
    """In pyproject.toml, and only ones that somebody owns: `.example` and `.invalid` are nobody's."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    assert [url for url in named.values() if re.search(r"\.(?:example|invalid|test|localhost)\b", url)] == []


def test_pins_have_hashes_and_no_address() -> None:
    pins = {}
    for name in ("run", "develop"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        assert "://" not in text
        pins[name] = re.findall(r"^(\S+==[^\\\n]+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
        assert len(pins[name]) == len(re.findall(r"^[^#\s]", text, re.MULTILINE)) > 10
    assert set(pins["run"]) < set(pins["develop"])


def _links(text: str) -> list[str]:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    return [one for one in re.findall(r"\]\(([^)\s]+)\)", text) if not one.startswith(("http:", "https:"))]


def _anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_the_reference_lists_every_public_name_once() -> None:
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    listed = re.findall(r"auto(?:function|class|exception|data):: (\w+)", text)
    modules = re.findall(r"automodule:: empriv\.(\w+)", text)
    assert len(set(listed)) == len(listed)
    assert set(empriv.__all__) <= {*listed, *modules}


# The method page: from the paper to the code.
METHOD = DOCS / "method.md"
# The attack model: every attack and the test that tries it.
ATTACKS = DOCS / "limits.md"
_FILES = re.compile(r"\b(?:benchmarks|docs|examples|scripts|tests)/(?:\w+/)*\w+\.(?:py|txt|yml)\b")


def test_every_function_named_by_the_method_page_exists() -> None:
    found = re.findall(r"`(empriv(?:\.\w+)+)`", METHOD.read_text())
    assert len(found) > 40
    for name in found:
        _resolve(name)
    with pytest.raises(AttributeError):
        _resolve("empriv.measuring.line.risk.Risk.nothing")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [(METHOD, 30), (ATTACKS, 40)], ids=["method", "limits"])
def test_every_test_named_by_a_page_exists(page: Path, least: int) -> None:
    """The attack model names files of tests/security without their folder."""
    found = re.findall(r"`((?:\w+/)*test_\w+\.py)::(\w+)`", page.read_text())
    assert len(found) > least
    for path, name in found:
        folder = ROOT / "tests" / ("security" if page == ATTACKS and "/" not in path else "")
        assert name in _tests_of(folder / path), (path, name)
    assert "test_nothing" not in _tests_of(Path(__file__))


def test_every_file_named_by_a_page_exists() -> None:
    named = {found[0] for page in LINKED for found in _FILES.finditer(page.read_text()) if page.name != "CHANGELOG.md"}
    assert len(named) > 30
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    assert _FILES.findall("`python tests/a/b_c.py --quick`, test_d.py") == ["tests/a/b_c.py"]


def test_every_numbered_thing_of_the_paper_has_its_place() -> None:
    text = METHOD.read_text()
    counts = {"Definition": 4, "Lemma": 4, "Theorem": 2, "Algorithm": 2, "Proposition": 1, "Figure": 5}
    for kind, count in counts.items():
        for number in range(1, count + 1):
            assert re.search(rf"^\| \*\*{kind} {number}\*\*", text, re.MULTILINE), (kind, number)


# Two pages on the code: questions and the files that answer them, and how to work on them.
ON_THE_CODE = (DOCS / "architecture.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
SOURCES = ROOT / "src" / "empriv"
_PLACES = re.compile(r"`((?:[\w.]+/)*(?:\w+\.(?:py|pyi|c)|\w+/))`")


def test_every_file_and_folder_named_by_the_pages_on_the_code_exists() -> None:
    named = _PLACES.findall(ON_THE_CODE)
    assert len(named) > 80
    assert [place for place in named if "NAME" not in place and not _exists(place)] == []
    assert _exists("sql/allowlist.py")
    assert not _exists("sql/session.py")
    assert not _exists("nothing/")


def test_every_name_on_the_pages_on_the_code_is_defined() -> None:
    text = re.sub(r"```.*?```", "", ON_THE_CODE, flags=re.DOTALL)
    named = {name.rpartition(".")[2] for name in re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", text)}
    defined = {path.stem for path in SOURCES.rglob("*")}
    for path in [*SOURCES.rglob("*.py"), *ROOT.glob("tests/*.py"), *ROOT.glob("tests/collecting/*.py")]:
        defined |= _defined_in(path)
    elsewhere = {"empriv", "py", "pyi", "c", "pycon", "singledispatch", "print", "isinstance", "src"}
    assert len(named) > 60
    assert named - defined - elsewhere == set()
    assert "AnyRisk" in named & defined


def test_the_kind_of_risk_on_the_page_is_the_tested_one() -> None:
    shown = re.search(r"```python\n(@dataclass.*?)```", ON_THE_CODE, re.DOTALL)
    assert shown is not None
    tested = (ROOT / "tests" / "measuring" / "test_any_risk.py").read_text()
    for line in shown[1].splitlines():
        assert line.partition("  #")[0].strip() in tested, line


def _exists(place: str) -> bool:
    """Whether there is such a file or folder: its path, or the end of one, in the sources; or a path in the project."""
    parts = Path(place).parts
    return any(path.parts[-len(parts) :] == parts for path in _paths()) or (ROOT / place).exists()


@cache
def _paths() -> list[Path]:
    return list(SOURCES.rglob("*"))


def _defined_in(path: Path) -> set[str]:
    """Names of functions, classes, variables, attributes and arguments."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def test_every_attack_names_its_tests() -> None:
    rows = ATTACKS.read_text().split("| attack | rule | test |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(rows) > 15
    for row in rows:
        assert "::test_" in row.rsplit("|", 2)[1], row


def _resolve(name: str) -> Any:
    """What a dotted name stands for: modules first, then attributes, fields of dataclasses among them."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            fields = getattr(value, "__dataclass_fields__", {})
            value = fields[part] if part in fields else getattr(value, part)
        return value
    raise AssertionError(name)


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_tour_is_stored_without_outputs() -> None:
    """The build of the site runs it; what it shows there is of that run, and no old output can disagree."""
    cells = json.loads((DOCS / "tour.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) == 15
    assert len(code) > 5
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)


# The part of the first page for those who use R.
R_LINES = re.search(r"```r\n(.*?)```", (DOCS / "start.md").read_text(), re.DOTALL)
IN_PYTHON = (
    (r"^library\(reticulate\)$", "import pandas"),
    (r"^(\w+) <- import\(\"(\w+)\"\)$", r"import \2 as \1"),
    (r"\bread\.csv\(", "pandas.read_csv("),
    (r"(\w)\$(\w)", r"\1.\2"),
    (r" <- ", " = "),
)


def _r_in_python(text: str) -> str:
    for pattern, replacement in IN_PYTHON:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


@pytest.mark.slow
def test_what_the_page_for_r_calls_is_there(names: dict[str, Any]) -> None:
    assert R_LINES is not None
    assert len(R_LINES[1].splitlines()) == 10
    exec(_r_in_python(R_LINES[1]), names)
    assert Path("audit.html").is_file()
    with pytest.raises(AttributeError):
        exec(_r_in_python(R_LINES[1].replace("empriv$audit", "empriv$nothing")), names)


RSCRIPT = shutil.which("Rscript")
_RETICULATE = 'quit(status = !requireNamespace("reticulate", quietly = TRUE))'
if RSCRIPT and subprocess.run([RSCRIPT, "-e", _RETICULATE], check=False, capture_output=True).returncode == 0:

    @pytest.mark.slow
    def test_r_runs_the_page_for_r(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        assert names
        assert R_LINES is not None
        monkeypatch.setenv("RETICULATE_PYTHON", sys.executable)
        Path("page.R").write_text(R_LINES[1])
        subprocess.run([str(RSCRIPT), "page.R"], check=True, capture_output=True, timeout=300)
        assert Path("audit.html").is_file()


# Tables of studies: what a page shows stands in the file that holds what the command printed.
STUDIES = ROOT / "benchmarks" / "results"


def test_what_a_cap_saves_is_what_was_printed() -> None:
    printed = (STUDIES / "saves.txt").read_text()
    shown = (DOCS / "noise.md").read_text().partition("<!-- printed by: python benchmarks/saves.py -->\n")[2]
    rows = shown.partition("\n\n")[0].splitlines()
    assert len(rows) > 5
    assert [row for row in rows if row not in printed] == []
    in_readme = re.search(r"\*\*saves\*\* \| ([^|]+)", (ROOT / "README.md").read_text())
    assert in_readme is not None
    (row,) = (row for row in rows if row.startswith("| its purchases a day | 83 | 1, 0.05 |"))
    for error in re.findall(r"±([\d.]+)", in_readme[1]):
        assert f" {error} " in row


def test_how_often_the_judge_covers_is_what_was_printed() -> None:
    printed = (STUDIES / "judge.txt").read_text()
    table = re.findall(
        r"^\| (as it is|[.\d]+ \w+[ (dither)]*) \| (.*) \|$", (DOCS / "judge.md").read_text(), re.MULTILINE
    )
    assert len(table) == 4
    for label, cells in table:
        noise = {"as it is": "0"}.get(label, label.partition(" (")[0].replace(" ", ""))
        by_kind = zip(
            cells.split(" | "), [(kind, n) for n in ("", "365 100") for kind in ("plain", "structured")], strict=True
        )
        for cell, (kind, sizes) in by_kind:
            for shown, n in zip(cell.split(" / "), sizes.split() or [""], strict=True):
                mean, least = re.fullmatch(r"([\d.]+) \((\d+)\)", shown).groups()  # type: ignore[union-attr]
                row = rf"^ +fresh {kind} *{re.escape(noise)} +{n} *{least} +{re.escape(mean)}\b"
                assert re.search(row, printed, re.MULTILINE), (label, kind, n, shown)


def _of_the_site(name: str) -> ModuleType:
    """A module beside docs/conf.py."""
    return module_at(DOCS / f"{name}.py")


def test_docstrings_become_lists() -> None:
    text = """At |x|, not ``|x|``.

Parameters
----------
q, p : results
    Of a query

Returns
-------
Risk
    its |d|

Examples
--------
>>> 1 | 2
3"""
    assert "\n".join(_of_the_site("docstrings").rewrite(text.splitlines())) == (
        "At \\|x\\|, not ``|x|``.\n\n"
        ":Parameters:\n    - ``q``, ``p`` – results.\n      Of a query\n\n"
        ":Returns:\n    `Risk`\n\n    its \\|d\\|\n\n"
        ".. rubric:: Examples\n\n>>> 1 | 2\n3"
    )


def test_signatures_have_numpys_names() -> None:
    read = _of_the_site("docstrings").read_signature
    array = "~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]]"
    assert read(None, "", "", None, None, f"(q: {array}, n: int)", None) == ("(q: NDArray[float64], n: int)", None)


def test_examples_in_help_texts_are_code() -> None:
    site = _of_the_site("helptexts")
    lines = ["Shows.", "", "| Example:", '|   empriv show "*.empriv"', ""]
    site.read_description(None, None, lines)
    assert lines == ["Shows.", "", "Example:", "", ".. code-block:: console", "", '    empriv show "*.empriv"', ""]
    options = [".. option:: --epsilon <E[,E...>", "   [default: <x>"]
    site.read_options(None, None, options)
    assert options == [".. option:: --epsilon <E[,E...]>", "   [default: <x>"]
