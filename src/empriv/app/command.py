"""The command `app`: open the desk in a browser."""

from __future__ import annotations

import os
from pathlib import Path

import click

from empriv.errors import InputError


@click.command()
@click.argument("source", metavar="[FILE|URL]", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Where it listens. [default: any]")
@click.option("--no-browser", is_flag=True, help="Print the address, and open nothing.")
@click.option(
    "--folder", metavar="DIR", default="empriv-desk", show_default=True, help="Where it keeps audits, noise and ledger."
)
@click.option("--demo", is_flag=True, help="Open on the decision about the demo's data.")
def app(source: str | None, port: int, no_browser: bool, folder: str, demo: bool) -> None:
    """Open a desk in the browser, on this machine alone: audits and releases without code.

    It writes the files that the other commands write, in one folder: what is done here is seen there.

    \b
    Examples:
      empriv app sales.csv
      empriv app postgresql://host/shop --folder desk
    """
    try:
        from empriv.app.server import serve
    except ImportError:
        raise InputError("`empriv app` must have its packages. Hint: pip install 'empriv[app]'.") from None
    from empriv.app.folder import Folder

    named: tuple[str, ...] = ()
    if source is not None:
        from empriv.collecting.sources import is_address

        if not is_address(source) and not Path(source).is_file():
            raise InputError(f"FILE must be there, got {source!r}.")
        named = (source if is_address(source) else os.path.realpath(source),)
    desk = Folder.opened(folder, named)
    page = "/"
    if demo:
        from empriv.app.decision_step import start_demo

        page = f"/audits/{start_demo(desk)}/decision"
    browse = None
    if not no_browser:
        import webbrowser

        browse = webbrowser.open
    serve(desk, port, browse=browse, say=lambda line: click.echo(line), page=page)
