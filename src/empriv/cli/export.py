"""The command `export`: files for the record of a saved audit."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.config import settings_of
from empriv.cli.inputs import check_targets, load_audit
from empriv.cli.options import target_options, unit_option
from empriv.cli.output import verdict_on, write_to
from empriv.cli.targets import parse_target
from empriv.cli.terminal import printable
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit


@click.command()
@click.argument("path", metavar="SAVED")
@target_options
@click.option("--noise", metavar="FILE", help="Saved noise that the answer is released with.")
@click.option("--dpia", metavar="PATH", help="Write a section of an impact assessment: .md or .html.")
@click.option("--registry", metavar="PATH", help="Write an entry of OpenDP's registry of deployments (YAML).")
@click.option("--review", default="", metavar="DATE", help="When the release is to be reviewed, such as 2030-01-31.")
@click.option("--exception", default="", metavar="TEXT", help="Why something that is not a pass is accepted.")
@click.option("--checker", default="", metavar="NAME", help="Who checked it.")
@unit_option
def export(
    path: str, noise: str | None, dpia: str | None, registry: str | None, review: str, exception: str, checker: str,
    **given: Any,
) -> None:  # fmt: skip
    """Write files for the record of an audit that was saved with --save: the same decision as on its page.

    \b
    Examples:
      empriv export audit.empriv --target "delta <= 0.05 at 0.1" --dpia release.md --review 2030-01-31
      empriv export audit.empriv --target "delta <= 0.05 at 0.1" --noise noise.empriv --registry entry.yaml
    """
    if dpia is None and registry is None:
        raise click.UsageError("--dpia or --registry must be given.")
    if dpia is not None and not dpia.lower().endswith((".md", ".html")):
        raise click.UsageError("--dpia must end in .md or .html.")
    settings = settings_of({}, given)
    if not settings.target:
        raise click.UsageError("Missing option '--target'.")
    check_targets((dpia, registry), (path, *(() if noise is None else (noise,))))
    from dataclasses import replace

    from empriv.base.storage import write_atomically
    from empriv.report.export import Accepted, html_of, impact_assessment, markdown_of, registry_entry, yaml_of

    command = shlex.join(["empriv", "show", path, *(part for text in settings.target for part in ("--target", text))])
    accepted = Accepted(review, exception, checker, command)
    audit = load_audit(path, tuple(parse_target(text).epsilon for text in settings.target))
    audit = replace(audit, unit=settings.unit or audit.unit, noun=settings.noun or audit.noun)
    verdicts = [
        (text, verdict_on(audit, parse_target(text), settings.basis, settings.presence)) for text in settings.target
    ]
    saved = None if noise is None else _certified(noise, audit)
    written = []
    if dpia is not None:
        sections = impact_assessment(audit, verdicts, noise=saved, accepted=accepted)
        text = html_of(sections) if dpia.lower().endswith(".html") else markdown_of(sections)
        write_to(dpia, lambda target: write_atomically(target, text.encode("utf-8", "backslashreplace")))
        written.append(dpia)
    if registry is not None:
        entry = yaml_of(registry_entry(audit, verdicts, noise=saved))
        write_to(registry, lambda target: write_atomically(target, entry.encode("utf-8"), mode=0o644))
        written.append(registry)
    click.echo(printable(f"Wrote {', '.join(written)}."))


def _certified(path: str, audit: Audit) -> Any:
    """Saved noise, certified anew for the audit."""
    import empriv

    saved = empriv.load(path)
    if not isinstance(saved, empriv.Noise | empriv.TableNoise):
        raise InputError("--noise must name saved noise, got another file. Hint: `empriv noise --save` writes it.")
    return saved.certified_for(audit.alone)
