"""Unit tests: the completion's program passes the tests of the reference. It runs in sandboxed workers only."""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar

from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.rules import Hazard, Rule

__all__ = ["PythonTests", "program_of"]

_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


def program_of(completion: str) -> str:
    r"""The program in a completion: the last block between code fences, or else the whole text.

    Example:
        >>> program_of("Like this:\n```python\nx = 1\n```\nDone.")
        'x = 1\n'
        >>> program_of("x = 1")
        'x = 1'
    """
    blocks = _FENCE.findall(completion)
    return str(blocks[-1]) if blocks else completion


@dataclass(frozen=True)
class PythonTests(Rule):
    """Right if the program runs, and then every test of the reference passes.

    Tests are what the reference does when it is run: plain assertions, functions named `test_...` without arguments,
    and `unittest.TestCase` classes. They run in the program's own process, since that is what unit tests are: a program
    that sets out to forge its verdict from within can do so. It cannot do anything else: what it may touch is in
    `vapo.verifiers.sandbox`. Starting processes, opening sockets and writing outside of a temporary folder fail with an
    error that the program sees.

    A program that raises or exits is wrong; one that hangs, dies or fills the memory is a failure without a verdict.

    Args:
        setup: Code that runs before the program, such as imports that every program may rely on.

    Example:
        >>> PythonTests().source.id
        'python-tests'
    """

    name: ClassVar[str] = "python-tests"
    hazard: ClassVar[Hazard] = Hazard.EVALUATES
    code: ClassVar[tuple[str, ...]] = (
        "vapo.verifiers.rules",
        "vapo.verifiers.sandbox",
        "vapo.verifiers.worker",
    )
    libraries: ClassVar[tuple[str, ...]] = ("python",)

    setup: str = ""

    def _judge(self, item: Item) -> Outcome:
        if not item.reference.strip():
            return Outcome(failure=Failure.UNPARSABLE, detail="the reference holds no tests")
        try:
            tests = _compiled(item.reference, "<tests>")
            setup = _compiled(self.setup, "<setup>")
        except (SyntaxError, ValueError) as error:
            return Outcome(
                failure=Failure.UNPARSABLE, detail=f"the tests are no program: {type(error).__name__}"
            )
        # Bound now: the program may put anything in the place of what it can reach by name.
        outcome, crash, run = Outcome, Failure.CRASH, _run
        try:
            run(setup, _compiled(program_of(item.completion), "<completion>"), tests)
        except MemoryError:
            return outcome(failure=crash, detail="out of memory")
        except BaseException as error:
            return outcome(verdict=-1, detail=type(error).__name__)
        return outcome(verdict=1)


def _compiled(text: str, name: str) -> CodeType:
    return compile(text, name, "exec", dont_inherit=True)


def _run(setup: CodeType, program: CodeType, tests: CodeType) -> None:
    """Raise whatever goes wrong."""
    space: dict[str, Any] = {"__name__": "candidate", "__builtins__": __builtins__}
    exec(setup, space)
    exec(program, space)
    before = dict(space)
    exec(tests, space)
    suite = unittest.TestSuite()
    functions: list[Callable[[], object]] = []
    for name, value in list(space.items()):
        if before.get(name) is value:
            continue
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(value))
        elif name.startswith("test_") and callable(value):
            functions.append(value)
    for function in functions:
        function()
    result = suite.run(unittest.TestResult())
    if not result.wasSuccessful():
        message = "a test failed"
        raise AssertionError(message)
