"""Every sentence that a person reads about an audit, made from codes and numbers; terminal, JSON and report say these.

`sentences` says bounds and verdicts, `checks` checks, `what_is_known` what readers know, `outcomes` single
outcomes, `side_by_side` several protocols; a `Finding` is a code that gets its sentence here; `summary` puts the
`facts` of an audit in words. This room knows no risk and no data: others give it codes and numbers.
"""

from empriv.words.facts import Figure, Question, RiskFacts
from empriv.words.findings import Finding
from empriv.words.sentences import databases, number, people, percent
from empriv.words.summary import Summary, figure_sentence, summarise, tail_sentence

__all__ = [
    "Figure",
    "Finding",
    "Question",
    "RiskFacts",
    "Summary",
    "databases",
    "figure_sentence",
    "number",
    "people",
    "percent",
    "summarise",
    "tail_sentence",
]
