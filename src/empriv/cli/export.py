"""The command `export`: files for the record of a saved audit."""

from __future__ import annotations

import shlex
from typing import Any

import click

from empriv.cli.config import settings_of
from empriv.cli.inputs import check_targets, saved_audit, saved_noise
from empriv.cli.options import target_options, unit_option
from empriv.cli.running import say_written, write_text, write_to
from empriv.cli.terminal import echo


@click.command()
@click.argument("path", metavar="SAVED")
@target_options
@click.option("--noise", metavar="FILE", help="Saved noise that the answer is released with.")
@click.option("--dpia", metavar="PATH", help="Write a section of an impact assessment: .md or .html.")
@click.option("--public", metavar="PATH", help="Write the page that may be published (.html): decision and promise.")
@click.option("--registry", metavar="PATH", help="Write an entry of OpenDP's registry of deployments (YAML).")
@click.option("--curator-type", metavar="TYPE", help="With --registry: Government, Industry or Nonprofit.")
@click.option("--review", default="", metavar="DATE", help="When the release is to be reviewed, such as 2030-01-31.")
@click.option("--exception", default="", metavar="TEXT", help="Why something that is not a pass is accepted.")
@click.option("--checker", default="", metavar="NAME", help="Who checked it.")
@unit_option
def export(
    path: str, noise: str | None, dpia: str | None, public: str | None, registry: str | None, curator_type: str | None,
    review: str, exception: str, checker: str, **given: Any,
) -> None:  # fmt: skip
    """Write files for the record of an audit that was saved with --save: the same decision as on its page.

    \b
    Examples:
      empriv export audit.empriv --target "delta <= 0.05 at 0.1" --dpia release.md --review 2030-01-31
      empriv export audit.empriv --target "delta <= 0.05 at 0.1" --noise noise.empriv \\
        --public page.html --registry entry.yaml --curator-type Government
    """
    if dpia is None and public is None and registry is None:
        raise click.UsageError("--dpia, --public or --registry must be given.")
    if dpia is not None and not dpia.lower().endswith((".md", ".html")):
        raise click.UsageError("--dpia must end in .md or .html.")
    if registry is not None and curator_type is None:
        raise click.UsageError("--registry needs --curator-type: Government, Industry or Nonprofit.")
    settings = settings_of({}, given)
    check_targets((dpia, public, registry), (path, noise))
    from empriv.auditing.deciding import verdicts_on
    from empriv.report.export import Accepted, html_of, impact_assessment, markdown_of, registry_entry, to_fill, yaml_of

    audit = saved_audit(path, settings)
    verdicts = verdicts_on(audit, settings.targets)
    if not verdicts:
        raise click.UsageError("Missing option '--target', which the audit was not made with.")
    saved = None if noise is None else saved_noise(noise, "--noise").certified_for(audit.alone)
    if dpia is not None:
        command = ["empriv", "show", path, *(part for text in settings.target for part in ("--target", text))]
        accepted = Accepted(review, exception, checker, shlex.join(command))
        sections = impact_assessment(audit, verdicts, noise=saved, accepted=accepted)
        write_text(dpia, (html_of if dpia.lower().endswith(".html") else markdown_of)(sections), mode=0o600)
    if public is not None:
        write_to(public, lambda target: audit.report(target, public=True, verdicts=verdicts, noise=saved))
    if registry is not None:
        entry = registry_entry(audit, verdicts, curator_type=curator_type or "", noise=saved)
        write_text(registry, yaml_of(entry))
    say_written(*filter(None, (dpia, public, registry)))
    if registry is not None and (unfilled := to_fill(entry)):
        echo(f"To be filled in, in {registry}: {', '.join(unfilled)}.")
