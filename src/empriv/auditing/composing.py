"""Releases compose only jointly: what the ledger holds, measured together with what is asked now.

The earlier queries are asked again of the same databases, or read from the ledger where their text does not suffice,
and given the noise that they were released with. What is written to the ledger, and what it allows, is the ledger's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from empriv.auditing.updating import unlike
from empriv.collecting.origins import Origin
from empriv.errors import InputError, RefusalError
from empriv.ledger import (
    Content,
    Figures,
    Identity,
    Joint,
    Ledger,
    Policy,
    PricesByName,
    Release,
    Released,
    ReleaseEntry,
    identity_of,
)
from empriv.ledger.accounts import Plans, Prices, effect_of, effects_of, releases_left
from empriv.ledger.values import label_text
from empriv.ledger.windows import window_of
from empriv.measuring import RiskContract
from empriv.measuring.densities.density import Density
from empriv.measuring.tables import TableRisk, measure_table
from empriv.noise.drawing import cell_of
from empriv.noise.drawn import with_noise
from empriv.noise.joint_noise import JointNoise
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.results import Results

NOW = "asked now"  # name of the new query beside the earlier ones
_DRAWS = 32
_POINTS = 400  # noisy results with everyone that are measured, at least: bandwidths take the square of their number
_SEED = 0


@dataclass(frozen=True, eq=False)
class Composition:
    """A query beside all that was released before from the same databases.

    Attributes
    ----------
    results : results of the earlier queries and of this one, as a vector, without noise
    laws : the noise of each earlier number, by its name
    own : names of the numbers that are asked now
    entries : ids of the ledger's entries that are covered
    """

    results: Results = field(repr=False)
    laws: Mapping[str, Law] = field(repr=False)
    own: tuple[str, ...]
    entries: tuple[int, ...]

    @property
    def own_results(self) -> Results:
        """Results of the query that is asked now."""
        if self.own == (NOW,):
            return self.results.component(NOW)
        return replace(self.results.select(self.own), components=tuple(map(_inner, self.own)))

    def noisy(self, own: Mapping[str, Law] | None = None) -> Results:
        """The vector as it is or would be released: noise on the earlier numbers, and on those asked now if given."""
        draws = max(4, -(-_POINTS // self.results.n_databases))
        laws = {**self.laws, **(own or {})}
        noisy = with_noise(self.results, laws, draws=draws, rng=np.random.default_rng(_SEED))
        # What all numbers would tell without any noise is seldom less, and takes as long to measure again.
        return replace(noisy, made_from=None)

    def measured(self, own: Mapping[str, Law] | None = None, *, density: Density | None = None) -> TableRisk:
        """The risk of all numbers together, as cells of one table: what was released before is known to its noise."""
        return measure_table(self.noisy(own), density=density)

    def joint(self, own: Mapping[str, Law], epsilon: float) -> Joint:
        """Figures of all numbers together, with their noise."""
        risk = self.measured(own)
        return Joint(epsilon, risk.delta(epsilon), risk.total_risk(epsilon), entries=self.entries)

    def to_json(self) -> dict[str, Any]:
        """All but the results."""
        laws = {name: law.to_json() for name, law in self.laws.items()}
        return {"laws": laws, "own": list(self.own), "entries": list(self.entries)}

    @staticmethod
    def from_json(facts: Mapping[str, Any] | None, results: Results) -> Composition | None:
        """The inverse of `to_json`; facts that are none raise KeyError, TypeError or ValueError."""
        if facts is None:
            return None
        laws = {str(name): Law.from_json(law) for name, law in facts["laws"].items()}
        own, entries = tuple(map(str, facts["own"])), tuple(map(int, facts["entries"]))
        if set(results.components or ()) != {*laws, *own}:
            raise ValueError("components")
        return Composition(results, laws, own, entries)


def composition(
    results: Results, ledger: Ledger, identity: Identity, again: Callable[[str], Results]
) -> Composition | None:
    """What was released before from these databases, beside the results of a new query; None if nothing was.

    Parameters
    ----------
    results : of the new query
    ledger : where the releases are remembered
    identity : the databases
    again : asks the text of an earlier query of the same databases
    """
    if results.draws is not None:
        raise InputError("`ledger` must go with a query that is not randomised: its noise is what is designed.")
    entries = ledger.released(identity)
    if not entries:
        return None
    parts: dict[str, Results] = {}
    laws: dict[str, Law] = {}
    for entry in _different(entries):
        found = _asked_again(entry, ledger, again)
        inner = found.components or (None,)
        if len(inner) != len(laws_of(entry)):
            raise InputError(
                f"Entry {entry.id} of the ledger must hold as many laws as its query gives numbers, got "
                f"{len(laws_of(entry))} for {len(inner)}."
            )
        label = f"released in entry {entry.id}"
        parts[label] = found
        for component, law in zip(inner, laws_of(entry), strict=True):
            laws[label if component is None else f"{label}: {component}"] = law
    own = (NOW,) if results.components is None else tuple(f"{NOW}: {inner}" for inner in results.components)
    stacked = Results.stack({**parts, NOW: results})
    return Composition(stacked, laws, own, tuple(entry.id for entry in entries))


@dataclass(frozen=True, eq=False)
class Asked:
    """What an audit says of the query that is released.

    Attributes
    ----------
    risk : of the query alone
    given : the same given what is known, if noise can be designed for that
    query, text, component, origin, scope, composition : as in `Audit`
    certified : noise that was certified for this risk already, by what it claims
    """

    risk: RiskContract = field(repr=False)
    query: str
    text: str | None
    component: str | None
    origin: Origin | None
    scope: str
    composition: Composition | None
    certified: dict[str, Noise | JointNoise] = field(repr=False)
    given: RiskContract | None = field(default=None, repr=False)


def release_through(
    ledger: Ledger,
    asked: Asked,
    value: float | Mapping[str, float] | None,
    *,
    noise: Noise | JointNoise,
    database: Any,
    further: Results | None = None,
) -> Released:
    """Release a noisy answer through the ledger; see `Audit.release`."""
    noise = _certified(asked, noise)
    results = asked.risk.results
    audited = results
    if further is not None:
        value, database, audited = _of_further(results, further, value, database)
    if value is None or database is None:
        raise InputError("`value` and `database` must be given, or `rows` of the database that is released from.")
    laws: Mapping[str, Law]
    if isinstance(noise, JointNoise):
        laws, target = noise.laws, Figures(noise.epsilon, noise.delta)
    else:
        laws, target = {NOW: noise.law}, Figures(noise.epsilon, noise.delta, noise.total_risk)
    policy = ledger.policy
    epsilon = target.epsilon if policy.epsilon is None else policy.epsilon
    own = laws if results.components is None else {f"{NOW}: {name}": law for name, law in laws.items()}
    law = {"laws": [law.to_json() for law in laws.values()]}
    plan = None if policy.window is None else _plan(asked, law, policy)
    release = Release(
        identity=identity_of([*results.databases.tolist(), database], asked.origin, scope=asked.scope),
        database=database,
        query=asked.query if asked.text is None else asked.text,
        component=asked.component,
        method=noise.method if isinstance(noise, Noise) else "joint",
        law=law,
        asked=target,
        achieved=_achieved(noise, epsilon),
        joint=None if asked.composition is None else asked.composition.joint(own, epsilon),
        n_individuals=results.n_individuals,
        results=results if asked.text is None else None,
        content=_content(audited, value, laws, database),
        plan=plan,
        prices=None if plan is None or ledger.knows_plan(plan, scope=asked.scope) else _prices(noise, policy),
    )

    def draw() -> float | tuple[float, ...]:
        if isinstance(noise, Noise):
            if isinstance(value, Mapping):
                raise InputError("`value` must be one number, got several.")
            return noise.release(value)
        if not isinstance(value, Mapping):
            raise InputError("`value` must hold each number by name, got one number.")
        drawn = noise.release(value)
        return tuple(drawn[name] for name in laws)

    return ledger.release(release, draw)


def _of_further(
    results: Results, further: Results, value: float | Mapping[str, float] | None, database: Any
) -> tuple[float | Mapping[str, float], Any, Results]:
    """Answer and label of a further database, and all results with it; refused if it is not like those audited."""
    if value is not None:
        raise InputError("`value` must not be given with `rows`, from which it is computed.")
    labels = further.databases.tolist()
    if database is not None:
        wanted = label_text(database)
        places = [place for place, label in enumerate(labels) if label_text(label) == wanted]
        if len(places) != 1:
            raise InputError(f"`database` must name a database of `rows`, got a label that matches {len(places)}.")
        further = further.on_databases(np.array(places))
    if further.n_databases != 1:
        raise InputError(f"`rows` must be of one database, got {further.n_databases:,}. Hint: `database` names it.")
    reason = unlike(results, further)
    if reason is not None:
        raise RefusalError(
            f"The new database is not like those audited. {reason} Hint: add it to the audit (`updated`, or empriv "
            "audit --update) and design noise again."
        )
    answers = further.q[0]
    names = results.components
    answer = float(answers) if names is None else dict(zip(names, map(float, answers), strict=True))
    return answer, further.databases.tolist()[0], results.with_databases(further)


def _plan(asked: Asked, law: Mapping[str, Any], policy: Policy) -> str:
    """Name of what a release of this query with this noise tells of each person, as the policy adds it up."""
    facts = [asked.risk.results.digest, asked.query, asked.text, asked.component, law, policy.to_json()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _prices(noise: Noise | JointNoise, policy: Policy) -> PricesByName | None:
    """What one release with this noise tells of each person, such that a full window tells what its composition does.

    The Gaussian curve adds up what fewer releases tell. Several numbers have no figures of many publications: None
    takes everybody for the one who is told most.
    """
    if not isinstance(noise, Noise) or policy.window is None or policy.epsilon is None:
        return None
    times = window_of(policy.window).length
    together = noise.after(times, epsilon=policy.epsilon, delta=policy.delta)
    squares = effects_of(together.achieved_delta_i, policy.epsilon) ** 2 / times
    names = [str(name) for name in noise.risk.results.individuals.tolist()]
    return PricesByName(names, squares, np.zeros(len(squares)))


def releases_fitting(noise: Noise | JointNoise, policy: Policy) -> int | None:
    """How many releases with this noise, one after the other, the window of a policy lets through; None for no end.

    Before the first of them, and by what the noise says of itself: each release is certified when it is asked for.
    """
    if policy.window is None or policy.epsilon is None:
        raise InputError("`policy` must have a window.")
    by_name, alone = _prices(noise, policy), _achieved(noise, policy.epsilon)
    limits = {"delta": policy.delta, "total_risk": policy.total_risk}
    if by_name is None:
        prices = Prices.for_anybody(effect_of(alone.delta or 0.0, policy.epsilon) ** 2)
    else:
        people = np.arange(1, len(by_name.people) + 1, dtype=np.uint64)
        prices = Prices(people, np.asarray(by_name.squares, float), np.asarray(by_name.escapes, float))
    nowhere = np.zeros(0, np.int64)
    fitting = releases_left(Plans.of([prices]), nowhere, nowhere, window_of(policy.window), limits, policy.epsilon)
    if fitting == 0:  # the first is judged by its certificate
        told = [(getattr(alone, name), limit) for name, limit in limits.items() if limit is not None]
        return int(all(figure is not None and figure <= limit for figure, limit in told))
    return fitting


def _certified(asked: Asked, noise: Noise | JointNoise) -> Noise | JointNoise:
    """The noise with a certificate for the audit at hand: what it says of itself, and of its results, is a claim."""
    claim = f"{type(noise).__name__} {noise.claim}"
    if claim not in asked.certified:
        risk = asked.risk if asked.given is None else asked.given
        if not noise.risk.results.same_as(risk.results):
            if noise.risk.results.same_as(asked.risk.results):
                raise InputError(
                    "`noise` must hide people from somebody who knows what this audit counts as known, got noise for "
                    "somebody who knows nothing. Hint: design_noise(audit, ...); or audit with adversary=None."
                )
            raise InputError("`noise` must be designed for this audit, got noise for other results.")
        asked.certified[claim] = noise.certified_for(risk)
    return asked.certified[claim]


def _content(results: Results, value: float | Mapping[str, float], laws: Mapping[str, Law], database: Any) -> Content:
    """What the database that is released holds, on the lattice on which it is released.

    On the lattice, so that digits lost in summing rows in another order do not make another database.
    """
    given = [value.get(name) for name in laws] if isinstance(value, Mapping) else [value]
    if isinstance(value, Mapping) == (results.components is None) or len(given) != len(laws):
        raise InputError(
            "`value` must be one number, got several."
            if results.components is None
            else "`value` must hold each number by name, got one number or other names."
        )
    answer = _cells(laws, given)
    label = label_text(database)
    here = [place for place, name in enumerate(results.databases.tolist()) if label_text(name) == label]
    # Another answer than was audited is not of the rows that were audited, whatever label it is given.
    if len(here) != 1 or results.outcomes[here[0]].any() or answer != _cells(laws, results.q[here[0]]):
        return Content(answer, None, results.digest)
    return Content(answer, _people(results, here[0], list(laws.values())), results.digest)


def _cells(laws: Mapping[str, Law], values: Any) -> str:
    """Numbers as multiples of the granularity that each is released in."""
    numbers = np.ravel(values).tolist() if not isinstance(values, list) else values
    return repr([cell_of(law, number) for law, number in zip(laws.values(), numbers, strict=True)])


def _people(results: Results, place: int, laws: Sequence[Law]) -> str:
    """The answers without each individual of a database, in the order of the individuals' names."""
    here = np.flatnonzero(results.entry_database == place)
    owners = np.searchsorted(results.starts, here, side="right") - 1
    steps = np.array([law.granularity for law in laws])
    cells = np.rint(results.entry_q[here].reshape(len(here), -1) / steps)
    outcomes = results.entry_outcomes[here].reshape(len(here), -1)
    lines = [
        repr((str(results.individuals[owner]), cell.tolist(), outcome.tolist()))
        for owner, cell, outcome in zip(owners, cells, outcomes, strict=True)
    ]
    return "\n".join(sorted(lines))


def _achieved(noise: Noise | JointNoise, epsilon: float) -> Figures:
    """What the release achieves by itself, at the epsilon that the ledger asks for."""
    if isinstance(noise, Noise):
        delta, total = noise.achieved_delta(epsilon), noise.certificate.achieved_total_risk(epsilon)
        if noise.present is not None:  # what it promises of a database that people are in is told too
            delta = max(delta, noise.present.achieved_delta(epsilon))
            if noise.total_risk is not None:
                total = max(total, noise.present.achieved_total_risk(epsilon))
        return Figures(epsilon, delta, max(total, delta))
    if epsilon >= noise.achieved_epsilon and noise.achieved_delta == 0:
        return Figures(epsilon, 0.0, 0.0)
    risk = noise.remeasure(draws=_DRAWS, rng=_SEED)
    return Figures(epsilon, risk.delta(epsilon), risk.total_risk(epsilon))


def _inner(name: str) -> str:
    return name.removeprefix(f"{NOW}: ")


def laws_of(entry: ReleaseEntry) -> list[Law]:
    """The laws of the noise of a release, of each of its numbers."""
    try:
        return [Law.from_json(law) for law in entry.law["laws"]]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"Entry {entry.id} of the ledger must hold a law of empriv's own, got another.") from None


def _different(entries: Sequence[ReleaseEntry]) -> list[ReleaseEntry]:
    """One entry of each query and noise, and those that may be of the same database once more.

    The same query and noise asked of another database is no further query.
    """
    different: dict[Any, ReleaseEntry] = {}
    for entry in entries:
        asked = (entry.query, entry.component, repr(sorted(dict(entry.law).items())))
        different.setdefault(entry.id if entry.further else asked, entry)
    return list(different.values())


def _asked_again(entry: ReleaseEntry, ledger: Ledger, again: Callable[[str], Results]) -> Results:
    kept = ledger.results_of(entry)
    if kept is not None:
        return kept
    found = again(entry.query)
    return found if entry.component is None else found.component(entry.component)
