"""The page that `benchmarks.real_data` writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.real_data_reading import reading
from benchmarks.real_verdicts import SETUPS

__all__ = ["page"]

Row = Mapping[str, Any]

_CLAIMS = ("frozen", "sequential", "hoeffding")
_HEAD = """# Real verifiers

What can be certified about verifiers that were really run, on data whose truth is known: the answers of
open-question systems as GPT-4 judged them (`openqa_eval`: 1,486 answers to 301 questions, truth from
people), and solutions of school mathematics checked against another model's answer (`gsm8k_solutions`:
5,276 solutions of 1,319 questions, truth exact).

Everything on this page was written by

    python -m benchmarks.real_data --data DIR --page docs/real-data.md

where DIR (or `VAPO_SHARED_DATA`) holds `verdicts/openqa_eval.jsonl` and
`verdicts/gsm8k_solutions.jsonl.gz`. Every number comes out of `vapo.certify`. The same by hand, for one
configuration:

    python -m benchmarks.verdict_files DIR/verdicts/openqa_eval.jsonl --out DATA
    vapo certify DATA/records.parquet --labels DATA/labels.parquet --score signal:bem \\
        --rho 0.15 --c-min 0.25 --delta 0.05 --group-cap 10 --out RUN
"""


def page(result: Row) -> str:
    """The page as Markdown."""
    parts = [_HEAD, _setups(result), _errors(result), _best(result), _certified(result), _refused(result)]
    parts += [_promise(result), reading(result), _all(result)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _setups(result: Row) -> str:
    rows = []
    for name, setup in SETUPS.items():
        found = result["errors"][name]
        rows.append([f"`{name}`", setup.says, _count(found["records"]), _count(found["groups"])])
    text = """
## Four readings of two files

In `gsm8k_solutions` the file's own primary is a vote of the peers, so the peers cannot be its signals.
Either one peer is the primary, on the solutions of the other models, or the vote is, and then only the
calculator check is left.

"""
    return text + _table(["reading", "who does what", "records", "groups"], rows)


def _errors(result: Row) -> str:
    rows = []
    for name, found in result["errors"].items():
        if name == "openqa-appeal":
            continue
        for side, part in found["sides"].items():
            rows.append(
                [
                    f"`{name}`",
                    side,
                    f"{_count(part['wrong'])} of {_count(part['records'])}",
                    f"{_percent(part['rate'])} ({100 * part['low']:.1f}–{100 * part['high']:.1f})",
                    _number(part["icc"]),
                    _number(part["design_effect"]),
                ]
            )
    text = """
## What the primaries get wrong

By the sign of the verdict, since that is what a gate can see. The intervals (Clopper–Pearson, 95 %) take
records for independent; the design effect says by how much the variance is really larger.

"""
    text += _table(["reading", "verdict", "wrong", "rate (95 %)", "ICC by group", "design effect"], rows)
    rows = []
    for name, found in result["errors"].items():
        if name == "openqa-appeal":
            continue
        for signal, part in found["signals"].items():
            shared = [
                part["joint_failure_right"] / part["false_negative_first"]
                if part["false_negative_first"]
                else None,
                part["joint_failure_wrong"] / part["false_positive_first"]
                if part["false_positive_first"]
                else None,
            ]
            rows.append(
                [
                    f"`{name}`",
                    signal,
                    _percent(part["error_second"]),
                    *(_percent(share, 0) for share in shared),
                    *(_number(part[key]) for key in ("correlation_right", "correlation_wrong")),
                ]
            )
    text += """
How far the signals can help: the share of the primary's errors that a signal makes too, among answers
that are right (wrongly rejected) and wrong (wrongly accepted), and the correlation of the errors.

"""
    head = ["reading", "signal", "its error", "shares false rejections", "shares false acceptances"]
    return text + _table([*head, "corr. among right", "corr. among wrong"], rows)


def _best(result: Row) -> str:
    rows = [
        [
            f"`{name}`",
            row["score"],
            *(_percent(row[f"{side} {c}"]) for side in ("plain", "pos", "neg") for c in ("0.1", "0.25")),
        ]
        for name, found in result["best"].items()
        for row in found
    ]
    text = """
## What there is to certify

The least harm that any single threshold leaves when at least 10 % or 25 % of all records are admitted,
with every label of the file in hand. No certificate can go below these, and none should be expected close
above them.

"""
    head = [
        "reading",
        "score",
        "any verdict ≥ 10 %",
        "≥ 25 %",
        "only +1 ≥ 10 %",
        "≥ 25 %",
        "only −1 ≥ 10 %",
        "≥ 25 %",
    ]
    return text + _table(head, rows)


def _cell(row: Row) -> str:
    if "error" in row:
        return "error"
    found = [f"{claim[0].upper()} {row[claim]['admitted'] / row['n']:.2f}" for claim in _CLAIMS if row[claim]]
    return "<br>".join(found) or "·"


def _certified(result: Row) -> str:
    text = """
## What was certified

One split by group: 30 % of the groups to design, the others to certification; δ = 0.05. A cell shows the
coverage certified under `frozen` (F), `sequential` (S) and `hoeffding` (H); a dot is a refusal under all
three. The claims are read off one certificate, which evaluates all of them; each is what a run with that
claim deciding selects.
"""
    for name in result["errors"]:
        rows = [row for row in result["grid"] if row["setup"] == name]
        first = rows[0]
        labels = sorted({row["bill"]["labels"] for row in rows if "bill" in row})
        calls = sorted({row["bill"]["secondary_calls"] for row in rows if "bill" in row})
        text += f"\n### `{name}`\n\n{_count(first['n'])} certification records in {_count(first['groups'])} "
        text += "groups. The bill: "
        text += (
            f"{_span(labels)} labels"
            + (f" and {_span(calls)} secondary calls" if calls[-1] else "")
            + ".\n\n"
        )
        lines = []
        for score, signs in dict.fromkeys((row["score"], row["signs"]) for row in rows):
            these = [row for row in rows if (row["score"], row["signs"]) == (score, signs)]
            lines.append([score, signs, *(_cell(row) for row in these)])
        head = [f"ρ {row['rho']:.2f}, C ≥ {row['c_min']:.2f}" for row in rows[:8]]
        text += _table(["score", "family", *head], lines)
    return text


def _span(values: Sequence[int]) -> str:
    return _count(values[0]) if values[0] == values[-1] else f"{_count(values[0])}–{_count(values[-1])}"


def _refused(result: Row) -> str:
    rows = []
    for name in result["errors"]:
        for rho in dict.fromkeys(row["rho"] for row in result["grid"]):
            cells = [r for r in result["grid"] if r["setup"] == name and r["rho"] == rho and "error" not in r]
            passed = [r for r in cells if r["frozen"]]
            wanted = [r for r in cells if not r["frozen"] and r["enough"]]
            line = [f"`{name}`", f"{rho:.2f}", f"{len(passed)} of {len(cells)}"]
            if passed:
                best = max(passed, key=lambda r: r["frozen"]["admitted"])
                line.append(
                    f"{best['frozen']['admitted'] / best['n']:.2f} ({best['score']}, {best['signs']})"
                )
            else:
                line.append("–")
            stuck = [r for r in wanted if r["enough"]["times"] <= 1]
            line.append(str(len(stuck)))
            short = [r for r in wanted if r["enough"]["times"] > 1]
            if short:
                near = min(short, key=lambda r: r["enough"]["records"])
                need = near["enough"]
                line.append(f"{need['harmful']} of {need['admitted']} ({near['score']}, {near['signs']})")
                line.append(_count(round(need["times"] * near["bill"]["labels"])))
                line += [_count(need["planned"][f"frozen {odds}"]) for odds in ("0.5", "0.9")]
            else:
                line += ["–"] * 4
            line.append(str(sum(1 for r in cells if not r["frozen"] and not r["enough"])))
            rows.append(line)
    text = """
## Refusals under `frozen`, and what would have been enough

Over scores, families and both C_min. *Stopped*: some candidate's own test would have passed, but its
chain had ended at a smaller candidate before it. *Short*: a candidate of low enough observed harm exists
and the stage is too small; of these the one that needs least is shown, with the labels at which it passes
if every count grows in proportion, and the records that the planner asks for at even odds and at 90 %
power. *Hopeless*: every candidate of enough coverage shows harm of ρ or more, so more labels would not
help.

"""
    head = ["reading", "ρ", "certified", "largest coverage", "stopped", "short: nearest"]
    return text + _table(
        [*head, "labels, in proportion", "records, plan 50 %", "plan 90 %", "hopeless"], rows
    )


def _promise(result: Row) -> str:
    text = f"""
## Did the promise hold?

What is promised is about the stage: under `frozen`, that the harm expected of the admitted records, given
everything that was observed, is at most ρ, except with probability δ = 0.05 over the labels. That
expectation cannot be seen in data. Two things can.

**Dealt**: {result["splits"]} times, groups are dealt at random into design (20 %), certification (50 %)
and a fresh part (30 %), and the certified policy decides on the fresh part through the gate's decision
function. Its harm there is a noisy measurement of a quantity that the certificate does not speak about,
so a share above δ in the last column would be no breach; an average above ρ would be one.

"""
    text += _table(_PROMISE_HEAD, _promise_rows(result["dealt"], of_all=False))
    text += f"""
**Drawn**: {result["splits"]} times, design and certification groups are drawn from the file with
replacement (30 % and 70 % of as many as it has). The file is then the population, its harm under the
certified policy is known exactly, and a certificate is false when that harm exceeds ρ: this share, of all
draws, is what should stay below δ. For `frozen` with several records a group the population is not what
the claim is about, but with independent groups it should come close.

"""
    return text + _table(_PROMISE_HEAD, _promise_rows(result["drawn"], of_all=True))


_PROMISE_HEAD = [
    "reading",
    "policy",
    "ρ, C_min",
    "claim",
    "certified",
    "coverage there",
    "mean harm there",
    "harm there > ρ",
]


def _promise_rows(found: Sequence[Row], *, of_all: bool) -> list[list[str]]:
    rows = []
    for entry in found:
        trial = entry["trial"]
        for claim in _CLAIMS:
            part = entry["claims"][claim]
            if of_all:
                above = f"{part['above']} of {entry['splits']} (≤ {100 * part['false_high']:.1f} %)"
            elif part["certified"]:
                above = _percent(part["above"] / part["certified"])
                above += f" ({100 * part['low']:.1f}–{100 * part['high']:.1f})"
            else:
                above = "–"
            rows.append(
                [
                    f"`{trial['setup']}`" + (", groups ignored" if trial["ungrouped"] else ""),
                    f"{trial['score']}, {trial['signs']}",
                    f"{trial['rho']:.2f}, {trial['c_min']:.2f}",
                    claim,
                    f"{part['certified']} of {entry['splits']}",
                    _number(part["coverage"]),
                    _percent(part["risk"]),
                    above,
                ]
            )
    return rows


def _all(result: Row) -> str:
    rows = []
    for row in result["grid"]:
        for claim in _CLAIMS:
            found = row.get(claim)
            if found:
                rows.append(
                    [
                        f"`{row['setup']}`",
                        row["score"],
                        row["signs"],
                        f"{row['rho']:.2f}",
                        f"{row['c_min']:.2f}",
                        claim,
                        f"{found['admitted'] / row['n']:.3f}",
                        f"{found['harmful']} of {found['admitted']}",
                        f"{found['risk_upper']:.4f}",
                        _count(row["bill"]["labels"]),
                        _count(row["bill"]["secondary_calls"]),
                    ]
                )
    head = [
        "reading",
        "score",
        "family",
        "ρ",
        "C_min",
        "claim",
        "coverage",
        "harmful",
        "risk_upper",
        "labels",
        "calls",
    ]
    inside = _table(head, rows)
    opening = f"<details><summary>{len(rows)} certificates</summary>"
    return f"\n## Every certificate\n\n{opening}\n\n{inside}\n</details>\n"
