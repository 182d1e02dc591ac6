"""Releasing a noisy answer of an audit through the ledger: certified anew, refused, or handed over.

What is written to the ledger, and what it allows, is the ledger's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.composing import NOW
from empriv.auditing.deciding import reasons_against
from empriv.auditing.updating import unlike
from empriv.base.row_sketches import RowSketches
from empriv.errors import InputError, RefusalError
from empriv.ledger import (
    Content,
    Figures,
    Ledger,
    Policy,
    Prices,
    Release,
    Released,
    Review,
    identity_of,
)
from empriv.ledger.values import label_text
from empriv.measuring.any_risk import total_risk_of
from empriv.measuring.line.moves import moves_of
from empriv.noise.drawing import cell_of
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.results import Results

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit

_ROUNDING = 1e-6  # of the largest influence, in which influences are compared
_DISTINCTIVE = 4  # different influences that no other rows are taken to have


def release_through(
    ledger: Ledger,
    asked: Audit,
    value: float | Mapping[str, float] | None,
    *,
    noise: Noise | TableNoise,
    database: Any,
    further: Results | None = None,
    dated: bool = True,
    review: Review | None = None,
) -> Released:
    """Release a noisy answer through the ledger; see `Audit.release`.

    ``further`` are results on rows of a further database; ``dated`` says whether its date is that of its rows.
    """
    alone = asked.alone
    noise = _certified(asked, noise)
    reasons = reasons_against(noise, alone)
    if reasons:
        raise RefusalError(f"The answer must not be released with this noise. {reasons[0]}")
    results = alone.risk.results
    audited, rows = results, results.rows
    if further is not None:
        value, database, further = _of_further(results, further, value, database, noise)
        audited, rows = results.with_databases(further), further.rows
    elif database is not None:
        check_day(noise, results, database)
    if value is None or database is None:
        raise InputError("`value` and `database` must be given, or `rows` of the database that is released from.")
    laws: Mapping[str, Law] = noise.laws if isinstance(noise, TableNoise) else {NOW: noise.law}
    target = Figures(noise.epsilon, noise.delta)
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
        method=noise.method,
        law=law,
        asked=target,
        achieved=_achieved(noise, epsilon, policy),
        joint=None if asked.composition is None else asked.composition.joint(own, epsilon),
        n_individuals=results.n_individuals,
        results=results if asked.text is None else None,
        content=_content(audited, value, laws, database, rows),
        dated=dated and (asked.origin is None or asked.origin.dated),
        plan=plan,
        prices=None if plan is None or ledger.knows_plan(plan, scope=asked.scope) else _prices(noise, policy),
        verified=_verified(results, further),
        review=review,
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


def _verified(results: Results, further: Results | None) -> str | None:
    """How the answer was verified: on the rows that it is of where they are at hand, else by the audit alone."""
    if further is not None and further.verified is not None:
        return f"this database: {further.verified}"
    return None if results.verified is None else f"the audit: {results.verified}; the rows of this answer not at hand"


def _of_further(
    results: Results,
    further: Results,
    value: float | Mapping[str, float] | None,
    database: Any,
    noise: Noise | TableNoise,
) -> tuple[float | Mapping[str, float], Any, Results]:
    """Answer and label of a further database, and its results alone; refused if it is not like those audited."""
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
    check_day(noise, further, further.databases[0])
    reason = unlike(results, further, moves=not _judges_days(noise))
    if reason is not None:
        raise RefusalError(
            f"The new database is not like those audited. {reason} Hint: add it to the audit (`updated`, or empriv "
            "audit --update) and design noise again."
        )
    answers = further.q[0]
    names = results.components
    answer = float(answers) if names is None else dict(zip(names, map(float, answers), strict=True))
    return answer, further.databases.tolist()[0], further


def _judges_days(noise: Noise | TableNoise) -> bool:
    """Whether the noise promises something of the very day that is released."""
    return noise.presence == "both"


def check_day(noise: Noise | TableNoise, results: Results, database: Any) -> None:
    """Refuse a database on which somebody did more than the answer hides, by that database's own leave-one-out."""
    places = [k for k, label in enumerate(results.databases.tolist()) if label_text(label) == label_text(database)]
    if not _judges_days(noise) or len(places) != 1:
        return  # what people did there is not known
    day = results.on_databases(np.array(places))
    if isinstance(noise, TableNoise):
        if noise.hides_day(day):
            return
        most = 0.0
    else:
        most = float(moves_of(day).sizes.max(initial=0.0))
        if most <= noise.cover * (1 + 1e-9):
            return
    what = (
        "decides whether there is an answer at all"
        if math.isinf(most)
        else "moves the answer by more than the released answer hides"
    )
    raise RefusalError(
        f"On this database somebody {what}. Nothing is released. Hint: cap what each person adds (empriv advise finds "
        "the cap; a capped query never needs a refusal, which itself tells a little), or design more noise with a "
        "larger bound."
    )


def _plan(asked: Audit, law: Mapping[str, Any], policy: Policy) -> str:
    """Name of what a release of this query with this noise tells of each person, as the policy adds it up."""
    facts = [asked.alone.risk.results.digest, asked.query, asked.text, asked.component, law, policy.to_json()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _prices(noise: Noise | TableNoise, policy: Policy) -> Prices | None:
    """What one release with this noise tells of each person, the upper figure. Several numbers have no such figures:
    None takes everybody for the one who is told most."""
    if not isinstance(noise, Noise) or policy.window is None or policy.epsilon is None:
        return None
    told = noise.publications(policy.epsilon).upper
    names = [str(name) for name in noise.risk.results.individuals.tolist()]
    return Prices(names, told.squares, told.escapes)


def _certified(asked: Audit, noise: Noise | TableNoise) -> Noise | TableNoise:
    """The noise with a certificate for the audit at hand: what it says of itself, and of its results, is a claim."""
    claim = f"{type(noise).__name__} {noise.claim}"
    if claim not in asked.certified:
        risk = asked.noise_subject().risk
        if noise.risk.results.digest != risk.results.digest:
            if noise.risk.results.digest == asked.alone.risk.results.digest:
                raise InputError(
                    "`noise` must hide people from somebody who knows what this audit counts as known, got noise for "
                    "somebody who knows nothing. Hint: design_noise(audit, ...); or audit with known='nothing'."
                )
            raise InputError("`noise` must be designed for this audit, got noise for other results.")
        asked.certified[claim] = noise.certified_for(risk)
    return asked.certified[claim]


def _content(
    results: Results,
    value: float | Mapping[str, float],
    laws: Mapping[str, Law],
    database: Any,
    rows: RowSketches | None,
) -> Content:
    """What the database that is released holds, on the lattice on which it is released; ``rows`` are all, or its own.

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
    place = here[0]
    shape, distinctive = _shape(results, place, list(laws.values()))
    return Content(
        answer=answer,
        people=_people(results, place, list(laws.values())),
        results=results.digest,
        shape=shape,
        distinctive=distinctive,
        rows=None if rows is None else rows.of(place if len(rows) == results.n_databases else 0),
    )


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


def _shape(results: Results, place: int, laws: Sequence[Law]) -> tuple[tuple[str, ...], bool]:
    """What people change the answer by, beside the one who changes it most; and whether that is distinctive.

    Of answers a + b q(x), people's influences are b times those of q: divided by the largest size, and with the sign of
    the first that is not 0, they are the same for all a and b. Two roundings, half a step apart: last digits that
    differ move some number over the edge of one of them, hardly of both.
    """
    here = np.flatnonzero(results.entry_database == place)
    owners = np.searchsorted(results.starts, here, side="right") - 1
    here = here[np.argsort(results.individuals[owners].astype(np.str_), kind="stable")]
    names = sorted(results.individuals[owners].astype(np.str_).tolist())
    change = results.q[place] - results.entry_q[here].reshape(len(here), *np.shape(results.q[place]))
    changes = np.nan_to_num(change.reshape(len(here), -1), nan=0.0)
    largest = np.abs(changes).max(axis=0, initial=0.0)
    # What is lost in summing is no influence.
    size = np.abs(np.nan_to_num(np.ravel(results.q[place])))
    if np.any(largest <= 1e-12 * size) or not len(here):
        return (), False
    parts = changes / largest
    first = parts[np.argmax(np.abs(parts) > _ROUNDING, axis=0), np.arange(parts.shape[1])]
    parts *= np.sign(first)
    outcomes = results.entry_outcomes[here].reshape(len(here), -1).tolist()
    facts = [names, outcomes]
    texts = tuple(repr((facts, np.floor(parts / _ROUNDING + half).astype(int).tolist())) for half in (0.0, 0.5))
    steps = np.array([law.granularity for law in laws])
    distinct = {tuple(cells) for cells in np.rint(changes / steps).tolist()} - {(0.0,) * len(steps)}
    return texts, len(distinct) >= _DISTINCTIVE


def _achieved(noise: Noise | TableNoise, epsilon: float, policy: Policy) -> Figures:
    """What the release achieves by itself, at the epsilon that the ledger asks for."""
    delta = noise.achieved_delta(epsilon)
    if policy.total_risk is None:
        return Figures(epsilon, delta)
    return Figures(epsilon, delta, max(delta, float(total_risk_of(noise.achieved_delta_i(epsilon)[:, None])[0])))
