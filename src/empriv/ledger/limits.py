"""What a policy allows: comparisons and their sentences, without side effects. What cannot be compared is refused."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.ledger.values import Figures, Joint, Policy, Release, ReleaseEntry, canonical

_LIMITED = ("delta", "total_risk")


def refusal(policy: Policy, release: Release, earlier: Sequence[tuple[ReleaseEntry, int]]) -> str | None:
    """Why the release would break the policy, None if it would not.

    Parameters
    ----------
    policy : the policy that holds
    release : what is asked for
    earlier : releases from overlapping databases, each with how many databases are shared
    """
    past = spent(earlier, release)
    number = len({_asked(entry) for entry, _ in earlier} | {_asked(release)})
    if policy.queries is not None and number > policy.queries:
        limit = "1 query" if policy.queries == 1 else f"{policy.queries:,} queries"
        return f"{past} This one would be query number {number}, above the limit of {limit}."
    if policy.epsilon is None:
        return None
    if earlier and release.joint is None:
        return (
            f"{past} The policy limits what they reveal together, and this release has no joint figures. "
            "Hint: audit(..., ledger=...) measures them."
        )
    covered = set() if release.joint is None else set(release.joint.entries)
    if missing := sorted({entry.id for entry, _ in earlier} - covered):
        return (
            f"{past} The joint figures of this release leave out {_entries(missing)}. "
            "Hint: another release came first; audit again."
        )
    # A release alone is jointly what it is by itself.
    figures: Figures = release.achieved if release.joint is None else release.joint
    if figures.epsilon > policy.epsilon:
        return (
            f"{past} This release has figures at epsilon {figures.epsilon:.6g}, above the limit {policy.epsilon:.6g}. "
            f"Hint: measure at epsilon {policy.epsilon:.6g}."
        )
    for name in _LIMITED:
        limit, figure = getattr(policy, name), getattr(figures, name)
        if limit is None:
            continue
        if figure is None:
            return f"{past} The policy limits {name}, and this release does not state its {name}."
        if not figure <= limit:
            digits = _digits(figure, limit)
            at = f"at epsilon {figures.epsilon:.6g}"
            return f"{past} This one would make {name} {figure:.{digits}g} {at}, above the limit {limit:.{digits}g}."
    return None


def _asked(release: Release | ReleaseEntry) -> tuple[str, str | None, str]:
    """What makes two releases the same query: one asked of another database counts no further."""
    return release.query.strip(), release.component, canonical(dict(release.law), name="law")


def spent(earlier: Sequence[tuple[ReleaseEntry, int]], release: Release) -> str:
    """What is released already, in a sentence or two."""
    if not earlier:
        return "Nothing is released from these databases yet."
    count = "1 release is" if len(earlier) == 1 else f"{len(earlier):,} releases are"
    shared = max(n for _, n in earlier)
    total = len(release.identity.labels)
    of_them = f"{shared:,} of the {total:,} databases" if shared else "the same source, cut into other databases"
    last = earlier[-1][0]
    figures = last.achieved if last.joint is None else last.joint
    parts = [f"{name} {value:.4g}" for name in _LIMITED if (value := getattr(figures, name)) is not None]
    last_figures = f", with {' and '.join(parts)} at epsilon {figures.epsilon:.4g}" if parts else ""
    covered = 1 + (len(last.joint.entries) if isinstance(last.joint, Joint) else 0)
    # Figures of the last release alone must not be taken for those of all.
    alone = " by the last alone" if last_figures and covered == 1 and len(earlier) > 1 else ""
    return f"{count} recorded from {of_them}{last_figures}{alone}."


def _entries(ids: Sequence[int]) -> str:
    named = ", ".join(map(str, ids[:5]))
    more = f" and {len(ids) - 5:,} more" if len(ids) > 5 else ""
    return f"{'entry' if len(ids) == 1 else 'entries'} {named}{more}"


def _digits(figure: float, limit: float) -> int:
    """As many digits as tell the two apart."""
    return next((d for d in range(4, 18) if f"{figure:.{d}g}" != f"{limit:.{d}g}"), 17)
