"""`compare`: from protocols and rows to a `Comparison`; wiring only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from empriv.auditing.audit import Audit
from empriv.auditing.make_audit import DEFAULT_EPSILONS, audit, with_known
from empriv.base.arguments import rising_epsilons
from empriv.collecting.origins import describe
from empriv.collecting.queries import Query
from empriv.collecting.run_options import Run
from empriv.comparing.comparison import MOST, Comparison
from empriv.comparing.goals import Goal
from empriv.errors import InputError
from empriv.measuring.densities.density import Density
from empriv.measuring.given.reader_knowledge import NOTHING, UNORDERED, as_said
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.protocols import Protocol, plain
from empriv.results import Results

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine
    from empriv.collecting.functions.frames import FrameKind

Compared: TypeAlias = str | Callable[..., Any] | Query | Protocol | Results | Audit
"""What can be compared: a query or a protocol, which is run, or results or an audit made before."""

_ANSWERS, _LEAST_DRAWS, _MOST_DRAWS = 1_500, 4, 64


def compare(
    protocols: Mapping[str, Compared],
    data: Databases | None = None,
    *,
    truth: str | None = None,
    epsilon: Iterable[float] | float = DEFAULT_EPSILONS,
    density: Density | None = None,
    component: str | None = None,
    known: Any = NOTHING,
    target: Mapping[str, Any] | None = None,
    draws: int | None = None,
    rng: int = 0,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
    frame: FrameKind = "dict",
) -> Comparison:
    """Compare protocols by their privacy, and by their error against the truth.

    Parameters
    ----------
    protocols : 2 to 12 by name, each SQL text, a function of the rows or a `Protocol` from `empriv.protocols`; or
        `Results` or an `Audit` made before
    data : databases, from `databases`, `subsamples`, `splits` or `repeats`; not needed for `Results` and `Audit`
    truth : name of the protocol whose answers are right, from which the others' errors are measured; it must not be
        randomised. Without it, errors are not known.
    epsilon : the epsilons to report; you can ask for others later
    density : how densities are estimated, the same for all
    component : compare this component of vector queries alone, by name; otherwise all are measured together. An
        `Audit` keeps its own density, component and knowledge.
    known : what readers know about each database, the same for all, as for `audit`; "nothing", the default here, as in
        the paper
    target : what is to be met, such as ``{"epsilon": 0.1, "delta": 0.01}``, with what `Audit.verdict` takes: the
        comparison then recommends the least error among those that meet it, or says that none does
    draws : of each randomised protocol for each database; default: 4 to 64, to make about 1,500 in all
    rng : seed; protocols draw the same random numbers from it, so that they do not differ by chance
    engine, memory_limit, timeout, jobs, progress, notice, frame : as for `collect`

    Returns
    -------
    Comparison

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> mean = "avg(delay)"
    >>> ways = {"raw": mean, "rounded": empriv.protocols.rounded(mean, to=5)}
    >>> comparison = empriv.compare(ways, data, truth="raw", epsilon=0.1)
    >>> comparison.front(0.1)
    ('raw', 'rounded')
    """
    if not isinstance(protocols, Mapping):
        raise InputError(f"`protocols` must be a dict of names and protocols, got {type(protocols).__name__}.")
    if not 2 <= len(protocols) <= MOST:
        raise InputError(f"`protocols` must hold 2 to {MOST} protocols, got {len(protocols)}.")
    if not all(isinstance(name, str) and name.strip() for name in protocols):
        raise InputError("`protocols` must have names that are non-empty strings.")
    if truth is not None and truth not in protocols:
        raise InputError(f"`truth` must name one of the protocols ({', '.join(protocols)}), got {truth!r}.")
    epsilons, said = rising_epsilons(epsilon), as_said(known)
    asked = NOTHING if said.ordered else (NOTHING, UNORDERED)
    goal = None if target is None else Goal.from_target(target)
    run = Run(
        draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, jobs=jobs,
        progress=progress, notice=notice, frame=frame,
    )  # fmt: skip
    # Check all of them before any is run.
    ways = {name: _as_protocol(name, protocol, data) for name, protocol in protocols.items()}
    if truth is not None and _randomised(ways[truth]):
        raise InputError("`truth` must give one answer for each database, got a randomised protocol.")
    audits: dict[str, Audit] = {}
    # Randomised ones last: how many draws are enough depends on the number of databases, which is known by then.
    for name in sorted(ways, key=lambda name: _randomised(ways[name])):
        way = ways[name]
        if isinstance(way, Audit):
            audits[name] = replace(way, epsilons=epsilons)
            continue
        if isinstance(way, Results):
            measured = audit(way, epsilon=epsilons, density=density, component=component, known=asked)
            audits[name] = with_known(measured, said.known, None, run)
            continue
        assert data is not None
        if run.draws is None and way.randomised and audits:
            run = replace(run, draws=_enough(next(iter(audits.values())).results.n_databases))
        measured = audit(way.publish(data, run), epsilon=epsilons, density=density, component=component, known=asked)
        measured = replace(measured, query=way.describe(), origin=describe(data))
        audits[name] = with_known(measured, said.known, data, run)
    return Comparison({name: audits[name] for name in protocols}, epsilons, truth, goal)


def _randomised(way: Protocol | Results | Audit) -> bool:
    return isinstance(way, Protocol) and way.randomised


def _enough(n_databases: int) -> int:
    """Draws for each database that make about `_ANSWERS` in all."""
    return min(_MOST_DRAWS, max(_LEAST_DRAWS, _ANSWERS // n_databases))


def _as_protocol(name: str, protocol: Any, data: Any) -> Protocol | Results | Audit:
    """A protocol to run, or the results or audit that were given for it."""
    if isinstance(protocol, Results | Audit):
        return protocol
    if isinstance(protocol, Noise | TableNoise):
        raise InputError(
            f"`protocols` must hold queries, protocols, results or audits, got noise for {name!r}. "
            "Hint: protocols.noised(query, noise)."
        )
    if data is None:
        raise InputError(f"`data` must be given, since {name!r} has to be run on it.")
    return protocol if isinstance(protocol, Protocol) else plain(protocol)
