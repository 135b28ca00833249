"""math-verify as it is, with its own faults: a real imperfect verifier for mathematics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from vapo.errors import InputError
from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.rules import Hazard, Rule, Unreadable, check_unreadable, unreadable_outcome

__all__ = ["MathVerify"]


@dataclass(frozen=True)
class MathVerify(Rule):
    """math-verify's own verdict on the completion, given the reference, in its default configuration.

    What it gets wrong, and how often, stands in docs/verifier-faults.md: it accepts a sum that nobody worked out, for
    one. Nothing is mended here. Only this is told apart: an error inside the library, which it hides behind its "not
    equal", is a failure and no verdict; a completion in which it finds nothing to compare is wrong, as it says itself.

    Its own time limits hang on SIGALRM and report a time-out as "not equal": they are off, and a pool's deadline holds.

    Args:
        precision: Decimal places to which it compares floating point numbers.
        strict: Whether names of variables matter.
        errors: What becomes of an error inside the library.

    Example:
        >>> rule = MathVerify()
        >>> [rule.judge(Item("a", "12 + 34 = ?", text, "46")).verdict for text in ("46", "47", "12 + 34")]
        [1, -1, 1]
    """

    name: ClassVar[str] = "math-verify"
    hazard: ClassVar[Hazard] = Hazard.HANGS
    code: ClassVar[tuple[str, ...]] = ("vapo.verifiers.rules",)
    libraries: ClassVar[tuple[str, ...]] = (
        "math-verify",
        "latex2sympy2-extended",
        "antlr4-python3-runtime",
        "sympy",
    )

    precision: int = 6
    strict: bool = True
    errors: Unreadable = "failure"

    def __post_init__(self) -> None:
        check_unreadable(self.errors)
        if not 0 <= self.precision <= 50:
            expected = "a number of decimal places in [0, 50]"
            raise InputError(expected, repr(self.precision), where="argument 'precision'")

    def prepare(self) -> None:
        """Load the library and let it build its parsers."""
        self._judge(Item("", "", r"$\frac{1}{2} + x$ or 1/2", r"$\frac{1}{2}$"))

    def _judge(self, item: Item) -> Outcome:
        library = _library()
        library.errors.clear()
        wanted = library.parse(item.reference, parsing_timeout=None)
        if not wanted:
            return Outcome(failure=Failure.UNPARSABLE, detail="the reference holds nothing to compare with")
        found = library.parse(item.completion, parsing_timeout=None)
        right = library.verify(
            wanted, found, float_rounding=self.precision, strict=self.strict, timeout_seconds=None
        )
        if right:
            return Outcome(verdict=1)
        if library.errors:
            return unreadable_outcome(self.errors, library.errors[0])
        return Outcome(verdict=-1, detail="" if found else "nothing to compare")


class _Library(NamedTuple):
    parse: Callable[..., list[Any]]
    verify: Callable[..., bool]
    errors: list[str]


class _Listener(logging.Handler):
    """Hears of the errors that the library swallows: it logs them, and answers "not equal"."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self.errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the kind of error; the message may hold megabytes, or take forever to write."""
        if record.exc_info and record.exc_info[0] is not None:
            self.errors.append(f"error in math-verify: {record.exc_info[0].__name__}")


@lru_cache(maxsize=1)
def _library() -> _Library:
    from math_verify import grader as grading
    from math_verify import parse, verify
    from math_verify import parser as parsing

    errors: list[str] = []
    for module in (grading, parsing):
        module.logger.addHandler(_Listener(errors))
        module.logger.setLevel(logging.DEBUG)
        module.logger.propagate = False
    return _Library(parse, verify, errors)
