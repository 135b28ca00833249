"""What math-verify gets wrong by itself: error rates over generated ways to write an answer down, with intervals.

    python -m benchmarks.verifier_faults --page docs/verifier-faults.md

The task is arithmetic, so the truth of each text is known from how it was made. A text is right if the answer that it
gives in the end is the number asked for, worked out; it is wrong if that is another number, no number, or several.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vapo.stats import binomial_rate
from vapo.verifiers import Item, Outcome, Verifier
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.origin import library_version
from vapo.verifiers.pool import Pool

EACH = 300
SEED = 20_261_119


class Sum(NamedTuple):
    """A question `a + b`, its value `s`, and a near miss `w`."""

    a: int
    b: int
    s: int
    w: int


class Variant(NamedTuple):
    """A way to write an answer down, right or wrong."""

    truth: int
    name: str
    write: Callable[[Sum], str]


_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""".split()  # noqa: SIM905 - words in a row, not a list
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905


def in_words(number: int) -> str:
    """A number below a million, spelt out."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" {in_words(number % size)}" if number % size else ""
            return f"{in_words(number // size)} {name}{rest}"
    raise AssertionError(number)


# Dresses of a number; each is written with the right value and with a wrong one.
_DRESSES: dict[str, Callable[[int], str]] = {
    "the number alone": str,
    "a sentence": lambda n: f"The answer is {n}.",
    "`####`": lambda n: f"Let me see.\n#### {n}",
    "a box": lambda n: rf"So it is $\boxed{{{n}}}$.",
    "a box without dollars": lambda n: rf"\boxed{{{n}}}",
    "text in a box": lambda n: rf"\boxed{{\text{{{n}}}}}",
    "dollars": lambda n: f"${n}$",
    "bold": lambda n: f"**{n}**",
    "bold after a colon": lambda n: f"**Answer:** {n}",
    "an exclamation mark": lambda n: f"It is {n}!",
    "a unit": lambda n: f"{n} apples",
    "a currency": lambda n: f"It costs ${n}.",
    "a decimal point": lambda n: f"{n}.0",
    "commas": lambda n: f"{n + 1000:,}",
    "LaTeX commas": lambda n: f"${n + 1000:,}$".replace(",", "{,}"),
    "groups by spaces": lambda n: f"{n + 1000:,}".replace(",", " "),
    "groups by spaces in dollars": lambda n: f"${n + 1000:,}$".replace(",", " "),
    "a decimal comma": lambda n: f"{n},0",
    "a plus sign": lambda n: f"+{n}",
    "leading zeros": lambda n: f"00{n}",
    "words": lambda n: f"The answer is {in_words(n)}.",
    "wide digits": lambda n: str(n).translate({ord("0") + d: 0xFF10 + d for d in range(10)}),
    "powers of ten": lambda n: rf"${n / 100} \times 10^2$",
    "an exponent": lambda n: f"{n / 100:g}e2",
    "a variable": lambda n: f"x = {n}",
}
_SHIFTED = {"commas", "LaTeX commas", "groups by spaces", "groups by spaces in dollars"}

_RIGHT: dict[str, Callable[[Sum], str]] = {
    "worked out": lambda q: f"{q.a} + {q.b} = {q.s}",
    "worked out, turned round": lambda q: f"{q.s} = {q.a} + {q.b}",
    "worked out with a sentence": lambda q: f"{q.a} + {q.b} = {q.s}. The answer is {q.s}.",
    "a check afterwards": lambda q: f"The answer is {q.s}. Check: {q.s} - {q.b} = {q.a}.",
    "a reason afterwards": lambda q: f"{q.s}, because {q.a} and {q.b} were given.",
    "a mistake taken back": lambda q: f"The answer is {q.w}. No, wait: the answer is {q.s}.",
    "a mistake named": lambda q: f"The answer is {q.s}, not {q.w}.",
    "another question afterwards": lambda q: (
        f"The answer is {q.s}.\n\nQ: What is 5 + 5?\nA: The answer is 10."
    ),
}
_WRONG: dict[str, Callable[[Sum], str]] = {
    "the sum itself": lambda q: f"{q.a} + {q.b}",
    "the sum in a sentence": lambda q: f"The answer is {q.a} + {q.b}.",
    "the sum in a box": lambda q: rf"\boxed{{{q.a} + {q.b}}}",
    "the sum in dollars": lambda q: f"${q.a} + {q.b}$",
    "the sum after `####`": lambda q: f"#### {q.a}+{q.b}",
    "another sum": lambda q: f"{q.s - 7} + 7",
    "a difference": lambda q: f"${q.s + 9} - 9$",
    "a fraction to divide": lambda q: rf"$\frac{{{3 * q.s}}}{{3}}$",
    "two answers": lambda q: f"{q.s} or {q.w}",
    "two answers, the wrong one first": lambda q: f"{q.w} or {q.s}",
    "two answers in a sentence": lambda q: f"The answer is {q.s} or {q.w}.",
    "two answers in a sentence, the wrong one first": lambda q: f"The answer is {q.w} or {q.s}.",
    "two boxes": lambda q: rf"$\boxed{{{q.s}}}$ or $\boxed{{{q.w}}}$",
    "a list": lambda q: f"{q.s - 1}, {q.s}, {q.s + 1}",
    "an answer taken back": lambda q: f"The answer is {q.s}. No, wait: the answer is {q.w}.",
    "the right one denied": lambda q: f"The answer is not {q.s}.",
    "the right one on the way": lambda q: f"{q.a} + {q.b} = {q.s}, and 1 more makes {q.s + 1}.",
    "a false equation": lambda q: f"{q.w} = {q.s}",
    "a false equation, turned round": lambda q: f"{q.s} = {q.w}",
    "a minus sign": lambda q: f"-{q.s}",
    "a percent sign": lambda q: f"{q.s}%",
    "a hair off": lambda q: f"{q.s}.0000004",
    "a bound": lambda q: f"$x > {q.s}$",
    "digits torn apart": lambda q: " ".join(str(q.s)),
    "the question again": lambda q: f"{q.a} + {q.b} = ?",
    "the question and a shrug": lambda q: f"What is {q.a} + {q.b}? I do not know.",
    "nothing": lambda q: "I do not know.",
}


def variants() -> list[Variant]:
    """All ways, right ones first."""

    def dressed(dress: Callable[[int], str], *, right: bool) -> Callable[[Sum], str]:
        return lambda q: dress(q.s if right else q.w)

    found = [Variant(1, name, dressed(dress, right=True)) for name, dress in _DRESSES.items()]
    found += [Variant(1, name, write) for name, write in _RIGHT.items()]
    found += [
        Variant(-1, f"{name}, another number", dressed(dress, right=False))
        for name, dress in _DRESSES.items()
    ]
    return found + [Variant(-1, name, write) for name, write in _WRONG.items()]


def texts(variant: Variant, count: int) -> list[Item]:
    """So many texts of one kind; the questions differ from kind to kind, and are the same in every run."""
    draw = random.Random(f"{SEED} {variant.truth} {variant.name}")
    items = []
    for number in range(count):
        a, b = draw.randrange(10, 500), draw.randrange(10, 500)
        question = Sum(a, b, a + b, a + b + draw.choice([-10, -2, -1, 1, 2, 10]))
        value = question.s + (1000 if variant.name.partition(", another")[0] in _SHIFTED else 0)
        items.append(Item(f"{variant.name} {number}", f"{a} + {b} = ?", variant.write(question), str(value)))
    return items


def measure(each: int) -> dict[str, Any]:
    """How often each verifier says otherwise than the truth."""
    found = variants()
    batches = [texts(variant, each) for variant in found]
    rows = []
    with Pool(MathVerify(), deadline=20.0) as pool:
        verifiers: list[Verifier] = [pool, Numeric(unreadable="wrong")]
        for variant, items in zip(found, batches, strict=True):
            row: dict[str, Any] = {
                "truth": variant.truth,
                "name": variant.name,
                "example": items[0].completion,
            }
            for name, verifier in zip(("math-verify", "numeric"), verifiers, strict=True):
                row[name] = _errors(verifier.verify(items), variant.truth)
            rows.append(row)
    return {"each": each, "rows": rows, "version": library_version("math-verify")}


def _errors(outcomes: Sequence[Outcome], truth: int) -> dict[str, int]:
    wrong = sum(outcome.verdict == -truth for outcome in outcomes)
    return {"wrong": wrong, "none": sum(outcome.verdict is None for outcome in outcomes), "of": len(outcomes)}


def _cell(errors: dict[str, int]) -> str:
    judged = errors["of"] - errors["none"]
    rate = binomial_rate(errors["wrong"], judged)
    missing = f"; no verdict on {errors['none']}" if errors["none"] else ""
    share = "–" if rate.rate is None else f"{100 * rate.rate:.1f} %"
    return f"{share} [{100 * rate.low:.1f}, {100 * rate.high:.1f}]{missing}"


def _shown(text: str) -> str:
    return "`` " + text.replace("\n", "⏎").replace("|", "\\|") + " ``"


_HEAD = """# What math-verify gets wrong by itself

math-verify {version} as `vapo.verifiers.mathverify.MathVerify` runs it, its default configuration, on {ways}
generated ways to write the answer of a sum down, {each} texts each, and beside it the strict
`Numeric(unreadable="wrong")` on the same texts. Written by

    python -m benchmarks.verifier_faults --page docs/verifier-faults.md

A text is right if the answer that it gives in the end is the number asked for, worked out; it is wrong if that is
another number, no number, or several. Whoever holds that `12 + 34` is a right answer to 12 + 34 will read some of these
rows otherwise. In brackets: exact 95 % binomial limits. A rate of 0 or 100 % is no accident: within one way of writing,
a fault hangs on the form and hardly ever on the number, so the errors of such a verifier persist, and a policy can
learn to make them.
"""


def page(result: dict[str, Any]) -> str:
    """The page as Markdown."""
    rows = result["rows"]
    lines = [_HEAD.format(version=result["version"], ways=len(rows), each=result["each"])]
    for truth, title, error in ((1, "Right answers", "rejects"), (-1, "Wrong answers", "accepts")):
        lines += [
            f"## {title}",
            "",
            f"| written as | for example | math-verify {error} | numeric {error} |",
            "|---|---|---|---|",
        ]
        chosen = [row for row in rows if row["truth"] == truth]
        chosen.sort(key=lambda row: -row["math-verify"]["wrong"])
        lines += [
            f"| {row['name']} | {_shown(row['example'])} | {_cell(row['math-verify'])} | {_cell(row['numeric'])} |"
            for row in chosen
        ]
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verifier_faults")
    parser.add_argument("--page", type=Path, help="where to write the page; otherwise it is shown")
    parser.add_argument("--each", type=int, default=EACH, help="texts of each kind")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    given = parser.parse_args(arguments)
    result = measure(given.each)
    if given.page:
        given.page.write_text(page(result), encoding="utf-8")
    else:
        print(json.dumps(result, indent=1, ensure_ascii=False) if given.json else page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
