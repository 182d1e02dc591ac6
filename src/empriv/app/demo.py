"""The demo's data, and its audit ready to be read."""

from __future__ import annotations

import shutil

from empriv.app.folder import Folder
from empriv.app.jobs import AUDIT, latest, start
from empriv.app.run import arguments_of
from empriv.cli.config import Settings
from empriv.cli.demo import DEMO_QUERY, DEMO_TARGET
from empriv.cli.targets import parse_target

DEMO = "demo-flights.parquet"
_NAME = "demo"


def put_demo(folder: Folder) -> str:
    """Copy the demo's data to the folder."""
    from empriv.datasets import flights

    target = folder.path / DEMO
    if not target.exists():
        target.unlink(missing_ok=True)  # a link to nothing would be written through
        shutil.copyfile(flights(), target)
    return DEMO


def start_demo(folder: Folder) -> str:
    """The name of the demo's audit, which is run unless that was done before."""
    file = put_demo(folder)
    if _NAME not in folder.audits():
        settings = Settings(
            files=(file,), individual=("aircraft",), database="date", query=(DEMO_QUERY,), target=(DEMO_TARGET,),
            epsilon=(parse_target(DEMO_TARGET).epsilon,), unit="min",
        )  # fmt: skip
        folder.write(_NAME, settings)
    job = latest(folder, _NAME)
    if not folder.saved(_NAME) and (job is None or not job.running):
        start(folder, _NAME, AUDIT, arguments_of(_NAME))
    return _NAME
