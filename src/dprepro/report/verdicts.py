"""What kinds of verdicts and of sentences there are: by these they are counted and filtered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# How a verdict is shown: it supports the claim, it does not, or it decides nothing.
GOOD, BAD, OPEN = "good", "bad", "open"

AGREES = "agrees"
BETTER = "better than the bound"
# As the paper says, but runs failed or returned nothing, or points are no better than where they began.
FLAWED = "agrees, with failures"
MISSED = "not reached"
DIFFERS = "differs"
FAILED = "failed"
REFUSED = "refused"
COMPARED = "compared"
NOTHING = "nothing to compare"
# Kinds in the order in which they are shown, each with its tone and the beginnings of the verdicts that belong to it.
_KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    AGREES: (
        GOOD,
        ("agrees", "as that of the private terms", "falls as the bound", "above the bound"),
    ),
    BETTER: (
        GOOD,
        ("faster than the bound", "falls faster than the bound", "grows less than", "fewer than stated"),
    ),
    FLAWED: (OPEN, ()),
    MISSED: (
        BAD,
        ("not reached", "grows more than", "more than stated"),
    ),
    DIFFERS: (BAD, ("differs",)),
    FAILED: (BAD, ("failed", "found no leaf", "no better than the initial point")),
    # Nothing was measured: the setting makes no sense here, or this implementation does not take it.
    REFUSED: (OPEN, ("refused",)),
    COMPARED: (
        OPEN,
        (
            *("at least", "at most", "indistinguishable", "measured", "best", "level with the best", "times the best"),
            # The constant of a bound is not stated.
            *("within", "not within", "above the bound with"),
            # With a step that was not tuned, of a curve that is not the published one.
            "end above w = 0",
            # Of upper bounds that are compared, or of methods that nobody claims to attain a lower one.
            *("larger than", "smaller than", "falls more slowly"),
            "the paper says",
        ),
    ),
    NOTHING: (
        OPEN,
        (
            "no exponent",
            "no bound",
            "the theorem bounds",
            "not measurable",
            "too wide",
            "too few",
            "no difference",
            "needs",
            "ran",
        ),
    ),
    # Findings.
    "contradicted": (BAD, ("contradicted",)),
    "fails as printed": (OPEN, ("fails as printed",)),
    "holds here": (GOOD, ("holds here",)),
    "empty": (OPEN, ("empty",)),
    "not decided": (OPEN, ("not decided",)),
    # Certificates and audits.
    "not private": (BAD, ("not private",)),
    "not certified": (OPEN, ("not certified",)),
    "certified": (GOOD, ("certified",)),
    "no privacy asked for": (OPEN, ("no privacy asked",)),
    "below the accounted epsilon": (GOOD, ("below the accounted",)),
    "proves more than claimed": (BAD, ("proves more",)),
}
# How many failed, or how many times the best it is, comes first in some verdicts.
_NUMBERS = re.compile(r"^[\d.,e+]+ (of [\d,]+ (runs|replicates|points) )?")
# A part of a verdict that tells of failures.
_FAILURES = re.compile(r"^[\d,]+ of [\d,]+ (runs|replicates|points) (failed|found no leaf|no better)")
OTHER = "other"
FINDINGS = ("contradicted", "fails as printed", "holds here", "empty", "not decided")
RESULTS = (AGREES, BETTER, FLAWED, MISSED, DIFFERS, FAILED, REFUSED, COMPARED, NOTHING, OTHER)


def kind(verdict: str) -> str:
    """Return the kind of a verdict by how it begins; of several beginnings that fit the longest counts.

    Agreement beside which runs failed is a kind of its own, wherever the failures stand: neither a success nor a miss.
    """
    if not verdict:
        return NOTHING
    parts = verdict.split("; ")
    sound = [part for part in parts if not _FAILURES.match(part)]
    if len(sound) < len(parts) and sound and tone(_begins(sound[0])) == GOOD:
        return FLAWED
    return _begins(verdict)


def _begins(verdict: str) -> str:
    text = _NUMBERS.sub("", verdict)
    fitting = [(len(start), name) for name, (_, starts) in _KINDS.items() for start in starts if text.startswith(start)]
    return max(fitting)[1] if fitting else OTHER


def tone(name: str) -> str:
    """Return the tone in which a kind is shown."""
    return _KINDS[name][0] if name in _KINDS else OPEN


def counted(verdicts: Iterable[str]) -> dict[str, int]:
    """Return how many verdicts there are of each kind, in the order of the kinds."""
    kinds = [kind(verdict) for verdict in verdicts]
    return {name: kinds.count(name) for name in (*_KINDS, OTHER) if name in kinds}


# What the sentences of a table say, by words that they hold; the first that fit count.
_SENTENCES: Mapping[str, tuple[str, ...]] = {
    "published noise is accounted at more than it claims": (" claims epsilon = ",),
    "the bound is met with the published noise, not with the smallest certified noise": (" with the published noise",),
    "faster than predicted": ("is faster than predicted", ": grows less than the private term"),
    "the prediction is missed": ("misses the prediction", ": grows more than it"),
    "the exponent agrees within the tolerance of the table only": ("agrees with the prediction only",),
    "the exponent agrees with the predicted one": ("agrees with the prediction", ": agrees ("),
    "too wide an interval or too few values to tell": (
        *(": too wide to tell", "too wide an interval to tell"),
        *(": too few values to tell", ", too few values to tell", "has too few values of n to tell"),
    ),
    "a method of the paper is ahead of another at its setting": (" is ahead of ",),
    "a method of the paper cannot be told from another at its setting": (" cannot be told from ",),
    "a method of the paper is behind another at its setting": (" is not ahead of ",),
    "which method is best": ("has the smallest ",),
    "samples and calls beside another method": (" times the samples of ", " less that of "),
    "where two regimes meet": ("the fitted lines meet",),
}
FURTHER = "further"


def grouped(sentences: Iterable[str]) -> dict[str, list[str]]:
    """Return sentences by what they say, in the order of the groups."""
    found: dict[str, list[str]] = {name: [] for name in (*_SENTENCES, FURTHER)}
    for sentence in sentences:
        found[_said(sentence)].append(sentence)
    return {name: group for name, group in found.items() if group}


def _said(sentence: str) -> str:
    return next((name for name, words in _SENTENCES.items() if any(word in sentence for word in words)), FURTHER)
