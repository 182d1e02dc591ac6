"""`Finding`: something worth saying, as a code and its numbers; it gets its sentence here.

What bounds assume, why a verdict is as it is, what readers know: the code that finds it writes down a `Finding`,
never a sentence. Nothing reads a sentence back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from empriv.words import sentences, what_is_known


@dataclass(frozen=True)
class Finding:
    """Something worth saying.

    Attributes
    ----------
    code : a short name that does not change
    numbers : what the sentence needs to know
    """

    code: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """In plain words."""
        return SENTENCES[self.code](**self.numbers)


SENTENCES: dict[str, Callable[..., str]] = {
    # what bounds assume
    "no-upper-bound": sentences.no_upper_bound,
    "smooth": sentences.smooth,
    "not-smooth": sentences.not_smooth,
    "nothing-assumed": sentences.nothing_assumed,
    "not-asked": sentences.not_asked,
    "other-density": sentences.other_density,
    "other-level": sentences.other_level,
    "draws": sentences.draws,
    "made-from": sentences.made_from,
    "table-bound": sentences.table_bound,
    "table-noise": sentences.table_noise,
    "table-from-below": sentences.table_from_below,
    "no-bound-of-kind": sentences.no_bound_of_kind,
    "repeated-bound": sentences.repeated_bound,
    "no-repeated-bound": sentences.no_repeated_bound,
    # why a verdict is as it is
    "estimate": sentences.estimate_meets,
    "bound": sentences.bound_meets,
    "lower-bound": sentences.lower_breaks,
    "day": sentences.day,
    "estimate-alone": sentences.estimate_alone,
    # what readers know, and how well that was measured
    "worst-of": what_is_known.worst_of,
    "contributions-not-given": what_is_known.contributions_not_given,
    "left-out": what_is_known.left_out,
    "determined": what_is_known.determined,
    "given": what_is_known.given,
    "given-chosen": what_is_known.given_chosen,
    "given-dropped": what_is_known.given_dropped,
    "nothing-known": what_is_known.nothing_known,
    "presence-not-measured": what_is_known.presence_not_measured,
    "sampled": what_is_known.sampled,
}
