"""What a judge's answer says: from the bytes of a chat completion to a verdict, or to the reason why there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from vapo._internal.strict import strict_json
from vapo.errors import IntegrityError
from vapo.verifiers.base import Failure
from vapo.verifiers.templates import Template

__all__ = ["Reading", "Said", "read_reply", "read_verdict"]

_TOLD = 160
"""How much of a judge's own words is kept."""
_MOST_TOKENS = 1 << 40


class Said(NamedTuple):
    """A verdict in a text, and where its word begins."""

    verdict: int | None
    """+1 or -1; None where the judge declined, or said nothing that can be read."""
    place: int
    declined: bool = False


class Reading(NamedTuple):
    """Everything that a reply says."""

    verdict: int | None
    confidence: float
    failure: Failure | None
    tokens_in: int = 0
    tokens_out: int = 0
    detail: str = ""
    broken: bool = False
    """Whether the reply is no chat completion at all, as after a fault on the way."""


def read_verdict(text: str, form: Template) -> Said:
    r"""Find the verdict in what a judge wrote.

    The word must stand where the template says, alone: an answer that holds words of both sides there has none.

    Example:
        >>> from vapo.verifiers.templates import TEMPLATES
        >>> read_verdict(" **True**.", TEMPLATES["equivalence"]).verdict
        1
        >>> read_verdict("True or false?", TEMPLATES["equivalence"]).verdict is None
        True
        >>> read_verdict("Both are 4.\nVerdict: False", TEMPLATES["reasoned"]).verdict
        -1
    """
    start, part = 0, text
    if form.verdict_at == "end":
        # Within one line: what could run over many would take quadratic time, and stop everybody's judges meanwhile.
        found = list(re.finditer(rf"(?im)^(?:[^\w\n]|_)*{re.escape(form.heading)}", text))
        if not found:
            return Said(None, 0)
        start, part = found[-1].end(), text[found[-1].end() :].split("\n", 1)[0]
    lead = re.match(r"[\W_]*", part)
    place = start + (lead.end() if lead else 0)
    sides = {1: form.yes, -1: form.no, 0: form.unsure}
    first = [side for side, words in sides.items() if _starts(text, place, words)]
    if len(first) != 1:
        return Said(None, place)
    if first[0] == 0:
        return Said(None, place, declined=True)
    if any(_holds(part, word) for word in sides[-first[0]]):
        return Said(None, place)
    return Said(first[0], place)


def _starts(text: str, place: int, words: Sequence[str]) -> bool:
    return any(re.compile(rf"{re.escape(word)}\b", re.IGNORECASE).match(text, place) for word in words)


def _holds(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def read_reply(body: bytes, form: Template, *, limit: int) -> Reading:
    """Read the body of a chat completion.

    Args:
        body: What the server sent with status 200.
        form: What was asked.
        limit: The most bytes that are read.

    Example:
        >>> from vapo.verifiers.templates import TEMPLATES
        >>> body = b'{"choices": [{"message": {"content": "False"}}], "usage": {"prompt_tokens": 90}}'
        >>> reading = read_reply(body, TEMPLATES["equivalence"], limit=10_000)
        >>> reading.verdict, reading.confidence, reading.tokens_in
        (-1, 1.0, 90)
        >>> read_reply(b"<html>", TEMPLATES["equivalence"], limit=10_000).broken
        True
    """
    try:
        data = strict_json(body, "the judge's reply", limit=limit)
        choice = data["choices"][0]
        message = choice["message"]
        text, refusal = message.get("content"), message.get("refusal")
    except IntegrityError as error:
        return _broken(str(error))
    except (LookupError, TypeError, AttributeError):
        return _broken("no message in the judge's reply")
    tokens = _tokens(data)
    if refusal or choice.get("finish_reason") == "content_filter":
        return Reading(None, 0.0, Failure.REFUSED, *tokens, _short(refusal or "filtered"))
    if not isinstance(text, str):
        return Reading(None, 0.0, Failure.UNPARSABLE, *tokens, "a message without text")
    said = read_verdict(text, form)
    if said.verdict is None:
        failure = Failure.REFUSED if said.declined else Failure.UNPARSABLE
        return Reading(None, 0.0, failure, *tokens, _short(text))
    sure = _confidence(choice.get("logprobs"), text, said, form)
    return Reading(said.verdict, sure, None, *tokens, _short(text))


def _broken(why: str) -> Reading:
    return Reading(None, 0.0, Failure.UNPARSABLE, broken=True, detail=_short(why))


def _short(text: object) -> str:
    """A text that fits on a line and can be stored anywhere."""
    return " ".join(str(text)[: 4 * _TOLD].encode("utf-8", "replace").decode().split())[:_TOLD]


def _tokens(data: dict[str, Any]) -> tuple[int, int]:
    usage = data.get("usage")
    counts = []
    for name in ("prompt_tokens", "completion_tokens"):
        value = usage.get(name) if isinstance(usage, dict) else None
        counts.append(value if type(value) is int and 0 <= value <= _MOST_TOKENS else 0)
    return counts[0], counts[1]


def _confidence(logprobs: Any, text: str, said: Said, form: Template) -> float:
    """How much of the probability of both sides the said one had, at the token with which the verdict begins.

    Where only the token that was written is known, its own probability counts, and all else counts against it; a judge
    that offers no probabilities is taken at its word.
    """
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    at = _token_at(tokens, text, said.place) if isinstance(tokens, list) else None
    if at is None:
        return 1.0
    written = _probability(at)
    sides = {1: 0.0, -1: 0.0}
    tops = at.get("top_logprobs")
    for entry in tops if isinstance(tops, list) else []:
        side = _side(entry, form)
        if side:
            sides[side] += _probability(entry) or 0.0
    if sides[said.verdict or 0] and sides[-(said.verdict or 0)]:
        return min(1.0, sides[said.verdict or 0] / (sides[1] + sides[-1]))
    best = max(written or 0.0, sides[said.verdict or 0])
    return 1.0 if written is None else min(1.0, best)


def _token_at(tokens: list[Any], text: str, place: int) -> dict[str, Any] | None:
    """The token that holds a character of the text, if the tokens do spell the text."""
    end = 0
    for token in tokens:
        if not isinstance(token, dict) or not isinstance(token.get("token"), str):
            return None
        start, end = end, end + len(token["token"])
        if not text.startswith(token["token"], start):
            return None
        if end > place:
            return token
    return None


def _probability(entry: dict[str, Any]) -> float | None:
    value = entry.get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return math.exp(min(value, 0.0))


def _side(entry: Any, form: Template) -> int:
    """The side whose words a token begins or is, 0 if it could be either or neither."""
    token = entry.get("token") if isinstance(entry, dict) else None
    piece = token.strip().casefold() if isinstance(token, str) else ""
    if not piece:
        return 0
    yes = any(word.casefold().startswith(piece) for word in form.yes)
    no = any(word.casefold().startswith(piece) for word in form.no)
    return int(yes) - int(no)
