"""How Sphinx builds this site: `make docs`. Every warning is an error, and so is every link that leads nowhere."""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx

import empriv
from empriv.cli.main import COMMANDS

sys.path.insert(0, str(Path(__file__).parent))
import docstrings
import helptexts

project = "empriv"
author = "The empriv authors"
copyright = "The empriv authors, Apache-2.0"  # noqa: A001 - the name that Sphinx asks for
version = release = version_of("empriv")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "empriv"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
smartquotes = False  # "--table" is an option, not a dash

# Markdown: headings can be linked to, and nothing needs a script from elsewhere (formulas are plain text).
myst_heading_anchors = 3
# Diagrams and formulas stand in blocks without a language.
highlight_language = "none"

# The tour is stored without outputs and run from top to bottom by every build; one failing cell fails it.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "image/svg+xml", 1), ("html", "text/html", 2)]

# The reference is made from the docstrings.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
default_role = "py:obj"
nitpicky = True
# Charts offer notebooks their Vega-Lite spec beside the picture; the site takes the picture.
suppress_warnings = ["mystnb.unknown_mime_type"]


def _names_of_the_code() -> set[str]:
    """Every module, function, class, method and attribute of empriv by its last name."""
    names: set[str] = set()
    for found in pkgutil.walk_packages(empriv.__path__, "empriv."):
        if found.name.rsplit(".", 1)[-1].startswith("_"):
            continue
        module = import_module(found.name)
        names.add(found.name.rsplit(".", 1)[-1])
        for name, value in vars(module).items():
            names.add(name)
            if inspect.isclass(value) and value.__module__.startswith("empriv"):
                names.update(dir(value))
                names.update(getattr(value, "__annotations__", {}))
    return names


def find_reference(app: Sphinx, env: Any, node: Any, contnode: nodes.Element) -> nodes.Node | None:
    """Names in docstrings and signatures: a link to what is public, plain code for the rest of empriv and for numpy.

    Whatever is neither stays a broken reference, and fails the build.
    """
    target = node.get("reftarget", "")
    last = target.rsplit(".", 1)[-1]
    if node.get("refdomain") != "py":
        return None
    if target.startswith("empriv ") and target.split()[1] in COMMANDS:  # a command, in the text of --help
        return contnode
    if last in empriv.__all__ and not target.startswith(("numpy", "scipy")):
        domain = env.get_domain("py")
        found = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"empriv.{last}", node, contnode)
        if found is not None:
            return found
    outside = (
        "numpy.",
        "np.",
        "npt.",
        "collections.",
        "click.",
        "duckdb.",
        "_duckdb.",
        "pathlib.",
        "os.",
        "typing.",
        "sqlglot.",
        "ArrayLike",
        "NDArray",
        "PathLike",
    )
    if target.startswith(outside) or target in np.__all__ or last in env.names_of_the_code:
        return contnode
    return None


def read_links(app: Sphinx, page: str, content: list[str]) -> None:
    """Links as GitHub reads them: to Markdown outside docs they lead to the page that includes it, or to the file."""
    content[0] = content[0].replace("](../CHANGELOG.md", "](changelog.md")
    docs = Path(app.srcdir).resolve()
    folder = (docs / page).parent

    def outside(link: re.Match[str]) -> str:
        inside = (folder / link[1]).resolve().is_relative_to(docs)
        return link[0] if inside else f"](path:{link[1]})"

    content[0] = re.sub(r"\]\((\.\./[^)#\s]+\.md)\)", outside, content[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", read_links)
    app.connect("builder-inited", lambda app: setattr(app.env, "names_of_the_code", _names_of_the_code()))
    app.connect("autodoc-process-docstring", docstrings.read)
    app.connect("autodoc-process-signature", docstrings.read_signature)
    app.connect("sphinx-click-process-description", helptexts.read_description)
    app.connect("sphinx-click-process-options", helptexts.read_options)
    app.connect("missing-reference", find_reference)
