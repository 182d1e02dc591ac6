"""`compare_page`: several audits side by side on one page."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np

from empriv.audits import Audit
from empriv.errors import InputError
from empriv.harmless import shortened, visible
from empriv.report.curves import lines_chart
from empriv.report.gather import gather
from empriv.report.page import label, picture_of, render
from empriv.storage import write_atomically
from empriv.validate.words import number

MOST = 12


def compare_page(audits: Mapping[str, Audit], path: str | PathLike[str], *, title: str = "Audits side by side") -> Path:
    """Write one page that compares audits.

    Parameters
    ----------
    audits : name of each, and the audit; 2 to 12
    path : of the page; must end in .html
    title : of the page

    Returns
    -------
    Path
        of the page, which has mode 0600
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"`path` must end in .html, got {target.suffix!r}.")
    if not 2 <= len(audits) <= MOST:
        raise InputError(f"`audits` must be 2 to {MOST}, got {len(audits)}.")
    asked = sorted({epsilon for audit in audits.values() for epsilon in audit.epsilons})
    end = max(float(gather(audit).epsilons[-1]) for audit in audits.values())
    grid = np.unique(np.concatenate((np.linspace(0.0, end, 50), asked)))
    start = int(np.searchsorted(grid, asked[0]))
    names = [shortened(name, 40) for name in audits]
    if len(set(names)) < len(names):
        raise InputError("`audits` must have names that differ in their first 37 characters.")
    bind = {"epsilon": [label(float(e)) for e in grid]}
    rows, deltas, totals = [], {}, {}
    for k, (name, audit) in enumerate(zip(names, audits.values(), strict=True)):
        delta_i = audit.delta_i(grid)
        deltas[name], totals[name] = delta_i.max(axis=0, initial=0.0), np.asarray(audit.total_risk(grid))
        said = audit.with_validity(audit.summary())
        upper = float(audit.bounds(asked[0]).upper)
        vanishes = audit.epsilon(0.0)
        bind[f"delta{k}"] = [number(float(v), 3) for v in deltas[name]]
        bind[f"total{k}"] = [number(float(v), 3) for v in totals[name]]
        bind[f"exposed{k}"] = [f"{int(v):,}" for v in np.count_nonzero(delta_i > 0, axis=0)]
        rows.append(
            {
                "name": name,
                "databases": f"{audit.results.n_databases:,}",
                "individuals": f"{audit.results.n_individuals:,}",
                "upper": "none" if upper >= 1 else number(upper),
                "vanishes": "none" if np.isinf(vanishes) else number(vanishes, 3),
                "asked": visible(said.asked),
                "alarms": said.alarms,
                "warnings": [visible(warning) for warning in said.warnings],
            }
        )
    read = "One line for each audit; the lower, the more private."
    charts = [
        lines_chart(grid, deltas, start=start, name="delta", title="delta against epsilon", caption=read),
        lines_chart(
            grid,
            totals,
            start=start,
            name="total_risk",
            title="Total risk against epsilon",
            axis="total risk (anybody)",
            caption=f"{read} Audits of more individuals have more total risk, all else equal.",
        ),
    ]
    content = {
        "title": title,
        "rows": rows,
        "bounded_at": label(asked[0]),
        "charts": [picture_of(one) for one in charts],
    }
    payload = {
        "epsilons": bind["epsilon"],
        "start": start,
        "bind": bind,
        "charts": {one.name: one.live for one in charts},
        "individuals": None,
    }
    text = render("compare.html", content, payload)
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    return target
