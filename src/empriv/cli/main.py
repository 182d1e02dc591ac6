"""The entry point: the group of commands, each imported when it is run, and how errors end the program.

Documented in docs/command-line.md.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from empriv.base.scratch import orderly_exit
from empriv.cli.running import DONE, ERROR, INTERRUPTED, USAGE, WORKER
from empriv.cli.terminal import printable, with_options
from empriv.errors import EmprivError

# Each command is the function of this name, with its line in the help.
COMMANDS = {
    "advise": "Try ways to publish an answer, and rank those that meet a target.",
    "app": "Open a desk in the browser, for those who write no code.",
    "audit": "Audit a query on your data.",
    "check": "Run an audit.toml as a gate.",
    "compare": "Put saved audits side by side.",
    "demo": "Audit real data that the package carries.",
    "export": "Write a section of an impact assessment, or an entry of a registry.",
    "explain": "Print the SQL that is run instead of a query.",
    "init": "Look at the data, and write an audit.toml to begin with.",
    "ledger": "Remember what was released.",
    "noise": "Design the noise that makes a saved audit private enough.",
    "release": "Release one answer with saved noise.",
    "show": "Show a saved audit.",
}
# Where a command is that has no module of its name; the app is a room above this one.
_MODULES = {
    "advise": "empriv.cli.compare", "app": "empriv.app.command", "demo": "empriv.cli.audit",
    "explain": "empriv.cli.check", "export": "empriv.cli.audit", "init": "empriv.cli.check", "show": "empriv.cli.audit",
}  # fmt: skip


class Commands(click.Group):
    """A group of commands whose errors are one line on stderr, with the documented exit codes."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            with orderly_exit():
                code = run(*args, standalone_mode=False, **extra)
        except SystemExit as error:  # by SIGTERM or SIGHUP
            _exit(error.code if isinstance(error.code, int) else ERROR)
        except click.UsageError as error:
            error.show()
            _exit(USAGE)
        except click.Abort:
            _stop("Interrupted: no file is half-written.", INTERRUPTED)
        except EmprivError as error:
            _stop(f"Error: {with_options(str(error))}", ERROR)
        except OSError as error:
            name = "" if error.filename is None else f" {Path(os.fsdecode(error.filename)).name!r}:"
            _stop(f"Error:{name} {error.strerror or type(error).__name__}.", ERROR)
        except MemoryError:
            _stop("Error: there is not enough memory. Hint: --memory-limit makes the engine write to disk.", ERROR)
        except RecursionError:
            _stop("Error: a query, a condition or a file must not be nested so deeply.", ERROR)
        except Exception as error:
            # Its message may quote rows, so it is shown only on request.
            if os.environ.get("EMPRIV_TRACEBACK"):
                traceback.print_exc()
            last = traceback.extract_tb(error.__traceback__)[-1]
            _stop(
                f"Error: unexpected {type(error).__name__} in {Path(last.filename).name}, line {last.lineno}. Hint: "
                "EMPRIV_TRACEBACK=1 shows where it comes from, and may show data.",
                ERROR,
            )
        return _exit(code if isinstance(code, int) else DONE)


class LazyCommands(Commands):
    """Commands that are imported when they are run: the list of commands in the help imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            self.commands = {name: _loaded(name) for name in COMMANDS}  # click suggests one of these
            return None
        return _loaded(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _loaded(name: str) -> click.Command:
    command: click.Command = getattr(import_module(_MODULES.get(name, f"empriv.cli.{name}")), name)
    return command


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="empriv", message="empriv %(version)s")
def main() -> None:
    """How private a statistic already is, from the data's own randomness.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 3 a target failed, 4 a target is unresolved,
    130 interrupted, 129 and 143 ended by SIGHUP and SIGTERM.

    \b
    Example:
      empriv demo
    """


def _stop(message: str, code: int) -> NoReturn:
    # An error about a query shows the query's line, and marks the place, on separate lines.
    click.echo("\n".join(map(printable, message.split("\n"))), err=True)
    _exit(code)


def _exit(code: int) -> NoReturn:
    if any(thread.name == WORKER for thread in threading.enumerate()):
        # A thread still computes and cannot be asked to stop; it writes no files.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
