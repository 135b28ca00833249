"""What the numbers of `benchmarks.real_data` say, in words that take their figures from the numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["reading"]

Row = Mapping[str, Any]
_WIDTH = 106


def reading(result: Row) -> str:
    """The section, as Markdown."""
    points = [
        _signs(result),
        _scores(result),
        _reasons(result),
        _groups(result),
        _chains(result),
        _claims(result),
        _appeals(result),
        _bill(result),
        _planner(result),
        _held(result),
    ]
    filled = (
        textwrap.fill(
            " ".join(point.split()),
            _WIDTH,
            initial_indent="- ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        for point in points
    )
    return "\n## Reading\n\n" + "\n".join(filled) + "\n"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _score(result: Row, setup: str, score: str) -> Row:
    found: Row = next(row for row in result["best"][setup] if row["score"] == score)
    return found


def _signs(result: Row) -> str:
    judge, peer = result["errors"]["openqa"], result["errors"]["gsm8k-peer"]
    shares = {
        name: _percent(part["joint_failure_right"] / part["false_negative_first"], 0)
        for name, part in judge["signals"].items()
    }
    accepts, rejects = (_percent(judge["sides"][side]["rate"]) for side in ("+1", "-1"))
    agrees, differs = (_percent(peer["sides"][side]["rate"]) for side in ("+1", "-1"))
    mean = _score(result, "openqa", "mean")
    return f"""**The two signs are two different verifiers.** {accepts} of what GPT-4 accepts is wrong,
        and {rejects} of what it rejects is right. A false rejection is mostly a right answer that the
        reference list does not have; all the signals read the same list and fail with it: BEM shares
        {shares["bem"]} of the false rejections, davinci-003 {shares["davinci3"]}, exact match
        {shares["em"]}. So thresholds clean up acceptances, down to {_percent(mean["pos 0.25"])} harm with
        a quarter of the records admitted, and hardly help with rejections ({_percent(mean["neg 0.25"])}).
        With the peer on GSM8K it is the other way round: {agrees} of its agreements are on a wrong answer
        that both found, {differs} of its disagreements are its own mistakes. A family with thresholds of
        their own for each sign can use that; it pays with three chains where there was one, each tested
        at a third of δ."""


def _scores(result: Row) -> str:
    alike = [part["correlation_right"] for part in result["errors"]["openqa"]["signals"].values()]
    latent, mean = (_score(result, "openqa", name)["plain 0.25"] for name in ("dawid-skene", "mean"))
    ours, theirs = (_score(result, "gsm8k-peer", name)["neg 0.1"] for name in ("dawid-skene", "mean"))
    return f"""**A score is as good as what it assumes.** On `openqa` the signals err together with the
        primary (correlation {min(alike):.2f} to {max(alike):.2f} among right answers). The latent-class
        score takes them for independent, is surest where all of them reject, and leaves
        {_percent(latent)} harm at a quarter of the records where the plain mean leaves {_percent(mean)}.
        On `gsm8k-peer`, where the peers are models of their own, it finds the cleanest tenth of the
        rejections ({_percent(ours)} harm against {_percent(theirs)}). The certificate is valid under
        either; what it covers is not the same."""


def _reasons(result: Row) -> str:
    best = min(
        row[f"{side} 0.1"]
        for row in result["best"]["openqa"]
        for side in ("plain", "pos")
        if row[f"{side} 0.1"] is not None
    )
    needs = {
        rho: min(row["enough"]["times"] for row in result["grid"] if _short(row, "openqa", rho))
        for rho in (0.05, 0.08, 0.10)
    }
    vote = _score(result, "gsm8k-majority", "signal:calc")["plain 0.1"]
    return f"""**A refusal has one of three reasons.** No room: `openqa` has nothing cleaner than
        {_percent(best)} at a tenth of the records, so at ρ = 0.05 it would take {needs[0.05]:.0f} times
        the stage. Too few groups: at ρ = 0.08 and 0.10 there is room, and {needs[0.08]:.1f} and
        {needs[0.10]:.2f} times the stage would do. Nothing there: `gsm8k-majority` leaves
        {_percent(vote)} at best, and at a ρ below that no number of labels helps."""


def _short(row: Row, setup: str, rho: float) -> bool:
    return bool(
        row["setup"] == setup and row["rho"] == rho and row.get("enough") and row["enough"]["times"] > 1
    )


def _groups(result: Row) -> str:
    side = result["errors"]["gsm8k-majority"]["sides"]["+1"]
    by_group, ignored = (
        next(
            entry["claims"]["frozen"]
            for entry in result["drawn"]
            if entry["trial"]["setup"] == "gsm8k-majority" and entry["trial"]["ungrouped"] is without
        )
        for without in (False, True)
    )
    splits = result["splits"]
    return f"""**Errors come by the question.** All that the vote accepts on one question is one and the
        same answer, so it is right or wrong all together: an ICC of {side["icc"]:.2f}, and
        {side["records"]:,} verdicts weigh little more than their {side["groups"]:,} questions. At ρ =
        0.10 no certificate is deserved there, by a hair. Counted by group {by_group["above"]} of {splits}
        draws got one; with every record taken for a group of its own {ignored["above"]} did, which is
        {_percent(ignored["above"] / splits, 0)} where at most 5 % was promised. The price: the bet is
        scaled to the largest group, so on `openqa` a few questions with ten answers slow down the others,
        which have five on average."""


def _chains(result: Row) -> str:
    key = ("setup", "score", "signs", "rho")
    refused = [row for row in result["grid"] if not row.get("frozen")]
    stopped = [row for row in refused if row.get("enough") and row["enough"]["times"] <= 1]
    higher = {
        tuple(row[name] for name in key)
        for row in result["grid"]
        if row.get("frozen") and row["c_min"] == 0.25
    }
    lost = [row for row in refused if row["c_min"] == 0.10 and tuple(row[name] for name in key) in higher]
    return f"""**Asking for less coverage can lose the certificate.** The chains of `frozen` begin with
        the smallest candidate that C_min allows, which has the least power, and a chain ends at its first
        failure. In {len(stopped)} of {len(refused)} refusals some later candidate's own test would have
        passed, and in {len(lost)} configurations C_min = 0.25 certifies where 0.10 does not. Ask for the
        coverage that is needed, not for less to be on the safe side."""


def _claims(result: Row) -> str:
    def certified(claim: str, setups: Sequence[str]) -> int:
        return sum(1 for row in result["grid"] if row["setup"] in setups and row.get(claim))

    judge, peer = ("openqa", "openqa-appeal"), ("gsm8k-peer",)
    counts = {
        claim: (certified(claim, judge), certified(claim, peer))
        for claim in ("frozen", "sequential", "hoeffding")
    }
    alone = sum(1 for row in result["grid"] if row.get("sequential") and not row.get("frozen"))
    return f"""**The claims differ in what they cost.** Of the configurations on `openqa`'s records
        `frozen` certifies {counts["frozen"][0]}, `sequential` {counts["sequential"][0]} and `hoeffding`
        {counts["hoeffding"][0]}; on `gsm8k-peer`, which has two and a half times the records,
        {counts["frozen"][1]}, {counts["sequential"][1]} and {counts["hoeffding"][1]}. In {alone}
        configurations `sequential` certifies what `frozen` refuses: those whose chain ended early, for it
        has no chains."""


def _appeals(result: Row) -> str:
    def largest(setup: str) -> float:
        rows = [row for row in result["grid"] if row["setup"] == setup and row.get("frozen")]
        return max((row["frozen"]["admitted"] / row["n"] for row in rows), default=0.0)

    calls = [
        row["bill"]["secondary_calls"]
        for row in result["grid"]
        if row["setup"] == "openqa-appeal" and "bill" in row
    ]
    return f"""**Appeals bought no coverage here.** With davinci-003 standing by instead of being a signal
        the largest certified coverage is {largest("openqa-appeal"):.2f} against {largest("openqa"):.2f},
        and certification took {min(calls):,} to {max(calls):,} secondary calls, since what any candidate
        appeals has to be asked. A second verifier that is cheap enough to run on everything serves better
        as a signal."""


def _bill(result: Row) -> str:
    shares = [row["bill"]["labels"] / row["n"] for row in result["grid"] if "bill" in row]
    return f"""**Nearly every record needs its label** ({_percent(min(shares), 0)} to
        {_percent(max(shares), 0)}), because a built family goes down to admitting everything. A cap on
        labels in the protocol, or a family of one's own that ends at the coverage one would ever deploy,
        costs less."""


def _planner(result: Row) -> str:
    pairs = [
        (row["enough"]["records"], row["enough"]["planned"]["frozen 0.5"])
        for row in result["grid"]
        if row.get("enough") and 1 < row["enough"]["times"] < 100 and row["enough"]["planned"]["frozen 0.5"]
    ]
    ratios = sorted(planned / grown for grown, planned in pairs)
    vote = [
        row["enough"]["planned"]["frozen 0.5"] / row["enough"]["records"]
        for row in result["grid"]
        if row["setup"] == "gsm8k-majority" and row.get("enough")
    ]
    said = f"; on `gsm8k-majority` it asks for {min(vote):.2f} of it" if vote else ""
    return f"""**The planner can be trusted to a factor, not to the digit.** Told the counts of the
        candidate, it asks at even odds for {ratios[0]:.2f} to {ratios[-1]:.2f} times what the same groups
        in greater number need (median {ratios[len(ratios) // 2]:.2f}){said}. It takes admission to fall
        on the records of a group independently and groups to be of one size; where whole groups are
        admitted together it plans too few."""


def _held(result: Row) -> str:
    drawn = [entry for entry in result["drawn"] if not entry["trial"]["ungrouped"]]
    issued = sum(part["certified"] for entry in drawn for part in entry["claims"].values())
    false = sum(part["above"] for entry in drawn for part in entry["claims"].values())
    worst = max(
        part["risk"] / entry["trial"]["rho"]
        for entry in result["dealt"]
        for part in entry["claims"].values()
        if part["certified"]
    )
    return f"""**The promise held.** With groups counted, {false} of {issued:,} certificates on drawn
        groups were false, and on fresh groups the mean harm was at most {_percent(worst, 0)} of ρ. Single
        fresh parts do exceed ρ now and then: they are small, and it is not about them that anything was
        promised. Most of these policies lie well below ρ, so this would show a gross mistake only; the
        laws of `make conformance` are where the claims are tested at the edge."""
