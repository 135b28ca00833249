"""Writes what the harness found: `VAPO_CONFORMANCE=full python -m tests.conformance --page PAGE`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.conformance import alarms, families, frozen_laws, groups, peers, walks, wrong
from tests.conformance.harness import LEVEL, Law, measure, replications

HEAD = """# Are the certificates valid?

Every law below stands on the boundary of what a claim promises: true harm (or coverage, or calls) meets
the limit exactly, so each certificate for such a candidate is false. `false` counts replications in which
**any** candidate that breaks a requirement was feasible, whichever one the selection would have taken.
Under the sequential claim, laws that unfold record by record are read at every moment (`iid` at the end
only), laws about families once, at the end. Intervals are two-sided Clopper-Pearson at {level:.1%}; a claim
is convicted when the lower end exceeds delta.

Adaptive laws break the assumption of the frozen claim (labels are independent given the frozen
observations), so there they are replaced by laws that react to observations only. Under the Hoeffding claim
all rates are far below delta: its radius allows for more variance than harm among admitted records has.

The wrong bounds stand under laws, and at sizes, that were chosen to show their fault; elsewhere they may look
harmless. The numbers of checks after which the monitor may miss little were set from its measured power.

Made by `VAPO_CONFORMANCE=full python -m tests.conformance --page docs/validity.md`; the same laws are tests
(`make conformance`, and at a tenth of the size in `make test`).
"""


def table(title: str, laws: Iterable[Law], count: int, *, wanted: bool) -> tuple[list[str], bool]:
    """One section, and whether every law in it came out as wanted."""
    lines = [
        "",
        f"## {title}",
        "",
        "| law | claim | replications | false | rate | interval | delta | verdict |",
    ]
    lines.append("|---|---|---:|---:|---:|---|---:|---|")
    fine = True
    for law in laws:
        found = measure(law, count)
        fine &= found.convicted is wanted
        verdict = "convicted" if found.convicted else "holds"
        lines.append(
            f"| {law.name} | {law.claim} | {count:,} | {found.false:,} | {found.rate:.4f} | "
            f"{found.low:.4f} to {found.high:.4f} | {law.delta:g} | {verdict} |"
        )
        print(found, file=sys.stderr)
    return lines, fine


def main() -> int:
    """Write the page; fail when a claim is convicted or a wrong bound is not."""
    parser = argparse.ArgumentParser(description="Replicate boundary laws and count false certificates.")
    parser.add_argument("--page", type=Path, help="where to write the page; printed when absent")
    page = parser.parse_args().page
    count = replications()
    started = time.process_time()
    every = [
        *walks.laws(),
        *families.laws(),
        *groups.laws(),
        *frozen_laws.laws(),
        *wrong.right_counterparts(),
    ]
    sections = [
        (f"The {claim} claim", [law for law in every if law.claim == claim], False)
        for claim in ("frozen", "sequential", "hoeffding")
    ]
    sections.append(("False alarms of the monitor", alarms.laws(), False))
    sections.append(("Misses of the monitor (delta: tolerated share)", alarms.power(), False))
    sections.append(("Wrong bounds that the harness has to convict", wrong.laws(), True))
    if peers.INSTALLED:
        sections.append(("A peer's default bound on its own terms", peers.laws(), True))
    else:
        print("mapie is not installed: left out", file=sys.stderr)
    lines, fine = [HEAD.format(level=LEVEL).rstrip()], True
    for title, laws, wanted in sections:
        found, good = table(title, laws, count, wanted=wanted)
        lines += found
        fine &= good
    text = "\n".join(lines) + "\n"
    if page is None:
        print(text, end="")
    else:
        page.write_text(text, encoding="utf-8")
    print(f"{time.process_time() - started:.0f} s of processor time", file=sys.stderr)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
