"""What `empriv noise` does for several numbers together: independent noise on each that keeps a joint promise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from empriv.cli.output import write_json

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.noise.joint_noise import JointNoise

_DRAWS = 32


def joint_noise(
    audit: Audit,
    *,
    epsilon: float,
    delta: float,
    granularity: float | None,
    save: str | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Design, print, save."""
    from empriv.noise.joint_noise import design_joint_noise

    risk: Any = audit.risk
    made = design_joint_noise(
        risk, epsilon=epsilon, delta=delta, granularity=granularity, progress=False if quiet else None
    )
    before, after = risk.delta(epsilon), made.remeasure(draws=_DRAWS, rng=0).delta(epsilon)
    if not quiet:
        _show(made, before, after)
    if save is not None:
        made.save(save)
    if json_path is not None:
        write_json(json_path, {**made.to_json(), "delta_before": before, "delta_measured_anew": after})


def _show(made: JointNoise, before: float, after: float) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from empriv.cli.terminal import console_for, printable
    from empriv.words.sentences import number

    console = console_for(sys.stdout)

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text, console.encoding), style=style))

    say(f"Noise for {len(made.laws)} numbers together, epsilon {made.epsilon:g}, delta {made.delta:g}", "bold")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    for header in ("number", "expected error", "law"):
        table.add_column(header, justify="right" if header == "expected error" else "left")
    for name, law in made.laws.items():
        words = printable(law.words, console.encoding)
        table.add_row(Text(printable(name, console.encoding)), f"{law.expected_error:.5g}", Text(words))
    console.print(table)
    say(f"Achieved epsilon: {made.achieved_epsilon:.4g}, for every influence observed.")
    say(
        f"delta at epsilon {made.epsilon:g}: {number(before)} without noise; {number(after)} with it, measured anew "
        f"from {_DRAWS} draws for each database."
    )
    for note in made.notes:
        say(note)
