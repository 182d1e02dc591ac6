"""What a policy allows: comparisons and their sentences, without side effects. What cannot be compared is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from empriv.ledger.values import Figures, Joint, Policy, Release, ReleaseEntry

_LIMITED = ("delta", "total_risk")


def refusal(
    policy: Policy, release: Release, *, queries: int, entries: Collection[int], spent: Callable[[], str]
) -> str | None:
    """Why the release would break the policy, None if it would not.

    Parameters
    ----------
    policy : the policy that holds
    release : what is asked for
    queries : how many different queries there would be with this one; needed where the policy limits them
    entries : earlier releases from overlapping databases; needed where the policy limits what they reveal together
    spent : what is released already, in a sentence or two
    """
    if policy.queries is not None and queries > policy.queries:
        limit = "1 query" if policy.queries == 1 else f"{policy.queries:,} queries"
        return f"{spent()} This one would be query number {queries}, above the limit of {limit}.{_unaudited(release)}"
    if policy.epsilon is None:
        return None
    if entries and release.joint is None:
        return (
            f"{spent()} The policy limits what they reveal together, and this release has no joint figures. "
            "Hint: audit(..., ledger=...) measures them."
        )
    covered = set() if release.joint is None else set(release.joint.entries)
    if missing := sorted(set(entries) - covered):
        return (
            f"{spent()} The joint figures of this release leave out {_entries(missing)}. "
            "Hint: another release came first; audit again."
        )
    # A release alone is jointly what it is by itself.
    figures: Figures = release.achieved if release.joint is None else release.joint
    if figures.epsilon > policy.epsilon:
        return (
            f"{spent()} This release has figures at epsilon {figures.epsilon:.6g}, above the limit "
            f"{policy.epsilon:.6g}. Hint: measure at epsilon {policy.epsilon:.6g}."
        )
    for name in _LIMITED:
        limit, figure = getattr(policy, name), getattr(figures, name)
        if limit is None:
            continue
        if figure is None:
            return f"{spent()} The policy limits {name}, and this release does not state its {name}."
        if not figure <= limit:
            digits = _digits(figure, limit)
            at = f"at epsilon {figures.epsilon:.6g}"
            return f"{spent()} This one would make {name} {figure:.{digits}g} {at}, above the limit {limit:.{digits}g}."
    return None


def _unaudited(release: Release) -> str:
    if release.content is None or release.content.people is not None:
        return ""
    return (
        " A database that was not audited, or whose answer is another than was audited, cannot be told from those "
        "released before and counts as a further query. Hint: audit again with it among the databases."
    )


def spent_words(count: int, shared: int, last: ReleaseEntry | None, release: Release) -> str:
    """What is released already, in a sentence or two: so many releases, sharing at most so many databases."""
    if last is None:
        return "Nothing is released from these databases yet."
    number = "1 release is" if count == 1 else f"{count:,} releases are"
    total = len(release.identity.labels)
    of_them = f"{shared:,} of the {total:,} databases" if shared else "the same source, cut into other databases"
    figures = last.achieved if last.joint is None else last.joint
    parts = [f"{name} {value:.4g}" for name in _LIMITED if (value := getattr(figures, name)) is not None]
    last_figures = f", with {' and '.join(parts)} at epsilon {figures.epsilon:.4g}" if parts else ""
    covered = 1 + (len(last.joint.entries) if isinstance(last.joint, Joint) else 0)
    # Figures of the last release alone must not be taken for those of all.
    alone = " by the last alone" if last_figures and covered == 1 and count > 1 else ""
    return f"{number} recorded from {of_them}{last_figures}{alone}."


def _entries(ids: Sequence[int]) -> str:
    named = ", ".join(map(str, ids[:5]))
    more = f" and {len(ids) - 5:,} more" if len(ids) > 5 else ""
    return f"{'entry' if len(ids) == 1 else 'entries'} {named}{more}"


def _digits(figure: float, limit: float) -> int:
    """As many digits as tell the two apart."""
    return next((d for d in range(4, 18) if f"{figure:.{d}g}" != f"{limit:.{d}g}"), 17)
