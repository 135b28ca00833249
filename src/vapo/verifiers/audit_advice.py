"""What to do about it: sentences that follow from the numbers of an audit, each with the numbers it follows from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["LEAST_JUDGED", "advise"]

LEAST_JUDGED = 0.5
"""A verifier that judges a smaller part of what the busiest one judges is not proposed as a primary."""
LEAST_CONFIRMED = 0.25
"""A secondary that agrees with the primary on a smaller part is not proposed: too little would be left."""

LEAST_TOLD = 0.1
"""A verifier that is surely not this much likelier to say right to a right answer than to a wrong one tells nothing."""
NEARLY_NONE = 0.005
"""An error rate that is estimated below this is hardly to be believed."""

Found = Mapping[str, Any]


def advise(found: Found) -> list[dict[str, Any]]:
    """Advice on an audit: which verifier goes first, which answers appeals, whether a gate has work to do.

    Args:
        found: What `audit` measured.

    Returns:
        One entry a subject: `about`, `choice` (a name, a list or none), and `says`.

    Example:
        >>> import pyarrow as pa
        >>> from vapo.verifiers.audit import audit
        >>> from vapo.verifiers.audit_file import verdicts_of
        >>> table = {"y": [1, -1] * 40, "verdict.copy": [1, -1] * 40, "label": [1, -1] * 30 + [1, 1] * 10}
        >>> [entry["choice"] for entry in audit(verdicts_of(pa.table(table)))["advice"] if entry["about"] == "copies"]
        [['primary+copy']]
    """
    said = [_labels(found), _copies(found), _uninformative(found)]
    primary = _primary(found) if found["labelled"] else _estimated_primary(found)
    said.append(primary)
    if primary is not None:
        said.append(_secondary(found, primary["choice"]))
        said += [_secondary_by_sign(found, primary["choice"], word) for word in ("right", "wrong")]
        said.append(_distinct(found, primary["choice"]))
    said.append(_clusters(found))
    said += [_signs(found), _gate(found)] if found["labelled"] else []
    said.append(_estimates(found))
    return [entry for entry in said if entry is not None]


def _entry(about: str, choice: Any, says: str) -> dict[str, Any]:
    return {"about": about, "choice": choice, "says": says}


def _labels(found: Found) -> dict[str, Any] | None:
    if found["labelled"] == found["items"]:
        return None
    if found["labelled"]:
        says = f"{found['labelled']} of {found['items']} answers have a label; rates are about these."
    elif found["estimated"] is None:
        says = "There is no label, and fewer than three verifiers: nothing here can tell who is wrong."
    else:
        says = (
            "There is no label. Error rates are estimates (Dawid and Skene) that take errors of different verifiers "
            "for independent; where these have a common cause they are too low. Whether a gate has anything to select "
            "on cannot be told without labels."
        )
    return _entry("labels", None, says)


def _estimates(found: Found) -> dict[str, Any] | None:
    """Where labels can check the estimates: the one that is furthest off."""
    gaps = {
        name: abs(verifier["estimated"]["error"] - verifier["error"]["rate"])
        for name, verifier in found["verifiers"].items()
        if verifier["estimated"] is not None and verifier["error"]["trials"]
    }
    if not gaps:
        return None
    worst = max(gaps, key=lambda name: gaps[name])
    verifier = found["verifiers"][worst]
    says = (
        f"Had there been no labels: the estimates would be off by up to {100 * gaps[worst]:.1f} percentage points "
        f"({worst}: {verifier['estimated']['error']:.1%} estimated, {verifier['error']['rate']:.1%} measured)."
    )
    return _entry("estimates", worst, says)


def _copies(found: Found) -> dict[str, Any] | None:
    pairs = [_named(pair) for pair in found["pairs"] if pair["distinct"] == "copies"]
    if not pairs:
        return None
    says = f"{', '.join(pairs)}: never differ here. One of them adds nothing to the other."
    return _entry("copies", pairs, says)


def _uninformative(found: Found) -> dict[str, Any] | None:
    names = [name for name in found["verifiers"] if not _tells(found, name)]
    if not names:
        return None
    says = "; ".join(
        f"{name} says right to {1.0 - found['verifiers'][name]['false_negative']['rate']:.1%} of the right answers and "
        f"to {found['verifiers'][name]['false_positive']['rate']:.1%} of the wrong ones"
        for name in names
    )
    return _entry("uninformative", names, f"Tells next to nothing: {says}. Not considered below.")


def _tells(found: Found, name: str) -> bool:
    """Whether what a verifier says may depend on the truth, as far as labels show."""
    high = found["verifiers"][name]["informedness"]["high"]
    return high is None or high >= LEAST_TOLD


def _named(pair: Found) -> str:
    return f"{pair['first']}+{pair['second']}"


def _interval(rate: Found) -> str:
    return f"{rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"


def _errs(verifier: Found) -> str:
    error = verifier["error"]
    if not error["trials"]:
        return "judges no answer that has a label"
    return f"errs on {_interval(error)} of the {error['trials']:,} answers that it judges"


def _cost(verifier: Found) -> float | None:
    cost = verifier["cost"] or {}
    tokens = [cost[kind]["mean"] for kind in ("tokens_in", "tokens_out") if kind in cost]
    return sum(tokens) if tokens else cost["calls"]["mean"] if "calls" in cost else None


def _alone(pair: Found, name: str, word: str = "") -> float:
    """How often one of a pair errs, or errs in saying a word, on the answers that both judge.

    What it does on the others says nothing about the pair: the other one may judge the easy ones only.
    """
    errors, side = pair["errors"], "first" if pair["first"] == name else "second"
    if not word:
        return float(errors[f"error_{side}"] or 0.0)
    believed = (errors[f"false_positive_{side}"] or 0.0) * errors["wrong"]
    missed = (errors[f"false_negative_{side}"] or 0.0) * errors["right"]
    mistaken, sound = (
        (believed, errors["right"] - missed) if word == "right" else (missed, errors["wrong"] - believed)
    )
    return float(mistaken / (mistaken + sound)) if mistaken else 0.0


def _pair_of(found: Found, one: str, two: str) -> Found | None:
    return next((pair for pair in found["pairs"] if {pair["first"], pair["second"]} == {one, two}), None)


def _primaries(found: Found) -> dict[str, Found]:
    """The verifiers that can go first: all that tell something but the one that is set apart for appeals."""
    able = {name: verifier for name, verifier in found["verifiers"].items() if name != found["appealed"]}
    return {name: verifier for name, verifier in able.items() if _tells(found, name)} or able


def _primary(found: Found) -> dict[str, Any] | None:
    verifiers = _primaries(found)
    busiest = max(verifier["error"]["trials"] for verifier in verifiers.values())
    able = {
        name: verifier
        for name, verifier in verifiers.items()
        if verifier["error"]["trials"] and verifier["error"]["trials"] >= LEAST_JUDGED * busiest
    }
    if not able:
        return None
    best = min(able, key=lambda name: (able[name]["error"]["high"], able[name]["error"]["rate"]))
    same = [name for name in able if able[name]["error"]["low"] <= able[best]["error"]["high"]]
    used = found["gate"]["primary"]
    priced = {name: _cost(able[name]) for name in same}
    known = {name: cost for name, cost in priced.items() if cost is not None}
    choice, why = best, "the lowest error rate"
    if len(known) == len(same) > 1:
        choice = min(known, key=lambda name: (known[name], able[name]["error"]["rate"]))
        why = f"the cheapest of those whose error rates cannot be told apart ({', '.join(same)})"
    elif used in same and used != best:
        choice = used
        why = f"{best} is not measurably better, with {_interval(able[best]['error'])}"
    pair = _pair_of(found, used, choice)
    shared = pair is not None and bool(pair["errors"]["items"])
    if pair is not None and shared and used in able and _alone(pair, used) <= _alone(pair, choice):
        why = (
            f"{choice}, with {_interval(able[choice]['error'])}, errs no less on what both judge "
            f"({_alone(pair, choice):.1%}, {used} {_alone(pair, used):.1%})"
        )
        choice = used
    says = (
        f"Primary: {'keep' if choice == used else 'change to'} {choice}, which {_errs(able[choice])}: {why}."
    )
    if used != choice:
        now = _errs(found["verifiers"][used])
        says += f" {used}, now in use, {now}."
        if pair is not None and shared:
            says += f" On what both judge, {choice} errs on {_alone(pair, choice):.1%}, "
            says += f"{used} on {_alone(pair, used):.1%}."
        says += f" What follows on signs and gate is about {used}; --primary {choice} shows it for {choice}."
    return _entry("primary", choice, says)


def _estimated_primary(found: Found) -> dict[str, Any] | None:
    if found["estimated"] is None:
        return None
    verifiers = _primaries(found)
    busiest = max(verifier["judged"] for verifier in verifiers.values())
    able = [name for name, verifier in verifiers.items() if verifier["judged"] >= LEAST_JUDGED * busiest]
    choice = min(able, key=lambda name: verifiers[name]["estimated"]["error"])
    error = verifiers[choice]["estimated"]["error"]
    says = f"Primary: {choice} has the lowest estimated error rate, {error:.1%}."
    if error < NEARLY_NONE:
        says += " An estimate so near 0 is a warning: it may be made from the verdicts of the others, as a vote is."
    return _entry("primary", choice, says)


def _with(found: Found, primary: str) -> dict[str, Found]:
    """The pairs of a verifier and one that could confirm it, by the other one's name."""
    pairs = {
        pair["second"] if pair["first"] == primary else pair["first"]: pair
        for pair in found["pairs"]
        if primary in (pair["first"], pair["second"]) and pair["distinct"] != "copies"
    }
    return {name: pair for name, pair in pairs.items() if _tells(found, name)}


def _secondary(found: Found, primary: str) -> dict[str, Any]:
    if not found["labelled"]:
        return _estimated_secondary(found, primary)
    useful = {
        name: pair
        for name, pair in _with(found, primary).items()
        if pair["wrong_when_confirmed"]["trials"] and pair["confirmed_share"] >= LEAST_CONFIRMED
    }
    if not useful:
        return _entry("secondary", None, f"Secondary: none agrees with {primary} often enough to confirm it.")
    left = {name: pair["wrong_when_confirmed"] for name, pair in useful.items()}
    apart = [name for name in useful if useful[name]["distinct"] != "alike"]
    choice = min(apart or useful, key=lambda name: left[name]["high"])
    alone = _alone(useful[choice], primary)
    told = f"{_interval(left[choice])} is wrong of what both agree on, against {alone:.1%} of {primary} alone"
    if left[choice]["high"] >= alone:
        says = f"Secondary: none lowers the risk of {primary} measurably. With {choice}, the best of them, {told}."
        return _entry("secondary", None, says)
    if not apart:
        says = (
            f"Secondary: none. With {choice}, {told}, but their errors go together: what misleads one misleads the "
            "other, and a policy may learn to."
        )
        return _entry("secondary", None, says)
    says = (
        f"Secondary: {choice}. It agrees with {primary} on {useful[choice]['confirmed_share']:.1%} of what both "
        f"judge, and {told}."
    )
    if useful[choice]["distinct"] != "distinct":
        says += " That their errors have different causes is not shown."
    return _entry("secondary", choice, says)


def _secondary_by_sign(found: Found, primary: str, word: str) -> dict[str, Any] | None:
    """The verifier that best confirms one of the primary's two verdicts, where one does so measurably."""
    pairs = _with(found, primary)
    said = found["verifiers"][primary][f"wrong_when_it_says_{word}"]["trials"]
    left = {
        name: pair[f"wrong_when_both_say_{word}"]
        for name, pair in pairs.items()
        if pair[f"wrong_when_both_say_{word}"]["trials"] >= max(1.0, LEAST_CONFIRMED * said)
    }
    best = min(left, key=lambda name: left[name]["high"], default=None)
    if best is None or left[best]["high"] >= _alone(pairs[best], primary, word):
        return None
    says = (
        f"To confirm that an answer is {word}: {best}. Where both say so they are mistaken in {_interval(left[best])}, "
        f"against {_alone(pairs[best], primary, word):.1%} of {primary} alone."
    )
    return _entry(f"secondary, {word}", best, says)


def _estimated_secondary(found: Found, primary: str) -> dict[str, Any]:
    verifiers, pairs = found["verifiers"], _with(found, primary)
    if not pairs:
        return _entry("secondary", None, f"Secondary: all others are copies of {primary}.")
    choice = min(pairs, key=lambda name: verifiers[name]["estimated"]["error"])
    excess = pairs[choice]["excess_agreement"] or 0.0
    says = (
        f"Secondary: {choice}, with the next lowest estimated error rate "
        f"({verifiers[choice]['estimated']['error']:.1%}). They agree on {abs(100 * excess):.1f} percentage "
        f"points {'more' if excess >= 0 else 'less'} than independent errors would let them; much more means a common "
        "cause."
    )
    return _entry("secondary", choice, says)


def _distinct(found: Found, primary: str) -> dict[str, Any] | None:
    """Which verifiers err for causes of their own; in words those beside the primary, the table has the others."""
    if not found["labelled"] or not found["pairs"]:
        return None
    kinds: dict[str, list[str]] = {"distinct": [], "alike": [], "unclear": []}
    for name, pair in _with(found, primary).items():
        kinds[pair["distinct"]].append(name)
    told = {"distinct": "come apart from those of", "alike": "go together with those of"}
    says = "; they ".join(f"{told[kind]} {', '.join(kinds[kind])}" for kind in told if kinds[kind])
    says = f"errors of {primary} {says}." if says else ""
    if kinds["unclear"]:
        says += f"{' T' if says else 't'}hese answers do not tell about {', '.join(kinds['unclear'])} beside {primary}."
    pairs = [
        _named(pair)
        for pair in found["pairs"]
        if pair["distinct"] == "distinct" and _tells(found, pair["first"]) and _tells(found, pair["second"])
    ]
    return _entry("distinct", pairs, f"Source-distinct in effect: {says}") if says else None


def _clusters(found: Found) -> dict[str, Any] | None:
    icc = {
        name: verifier["icc"] for name, verifier in found["verifiers"].items() if verifier["icc"] is not None
    }
    if not icc or max(icc.values()) < 0.02:
        return None
    worst = max(icc, key=lambda name: icc[name])
    says = (
        f"Errors cluster by group (up to {icc[worst]:.2f} for {worst}): split and count by group. The intervals here "
        "allow for it."
    )
    return _entry("groups", worst, says)


def _signs(found: Found) -> dict[str, Any] | None:
    """Whether one of the two verdicts of the verifier in use can be believed by itself."""
    gate = found["gate"]
    verifier = found["verifiers"][gate["primary"]]
    told = {"right": verifier["wrong_when_it_says_right"], "wrong": verifier["wrong_when_it_says_wrong"]}
    if not all(rate["trials"] for rate in told.values()) or verifier["error"]["high"] <= gate["rho"]:
        return None
    sound = [word for word, rate in told.items() if rate["high"] <= gate["rho"]]
    apart = told["right"]["high"] < told["wrong"]["low"] or told["wrong"]["high"] < told["right"]["low"]
    if not sound and not apart:
        return None
    says = (
        f"Signs: when {gate['primary']} says right it is mistaken in {_interval(told['right'])}, when it says wrong in "
        f"{_interval(told['wrong'])}. Thresholds for each sign (--signs specific) can use the difference"
    )
    says += f"; '{sound[0]}' keeps to {gate['rho']:.1%} by itself." if sound else "."
    return _entry("signs", sound, says)


def _gate(found: Found) -> dict[str, Any] | None:
    gate, primary = found["gate"], found["gate"]["primary"]
    alone = found["verifiers"][primary]["error"]
    if not alone["trials"]:
        return None
    if alone["high"] <= gate["rho"]:
        says = f"Gate: {primary} errs on {_interval(alone)}, within {gate['rho']:.1%} without any selection."
        return _entry("gate", "none needed", says)
    telling = {
        name: found_
        for name, found_ in gate["signals"].items()
        if found_["low"] is not None and found_["low"] > 0.5
    }
    if not telling:
        says = (
            f"Gate: no signal here tells right verdicts of {primary} from wrong ones; without another one it can only "
            "choose between signs, or abstain."
        )
        return _entry("gate", "nothing to select on", says)
    best = max(telling, key=lambda name: telling[name]["value"])
    at = [row for row in gate["selection"] if row["rate"] is not None and row["high"] <= gate["rho"]]
    says = (
        f"Gate: there is something to select on. {best} ranks a right verdict of {primary} above a wrong one in "
        f"{telling[best]['value']:.1%} of cases ({telling[best]['low']:.1%} to {telling[best]['high']:.1%})."
    )
    if at:
        widest = max(at, key=lambda row: float(row["coverage"]))
        says += (
            f" Of the {widest['coverage']:.0%} of answers with the highest mean signal, {_interval(widest)} are wrong, "
            f"which keeps to {gate['rho']:.1%}."
        )
    else:
        lowest = min(
            (row for row in gate["selection"] if row["rate"] is not None), key=lambda row: float(row["rate"])
        )
        says += (
            f" Yet no share looked at is shown to keep to {gate['rho']:.1%}: of the best {lowest['coverage']:.0%}, "
            f"{_interval(lowest)} are wrong, and it is the upper limit that counts."
        )
    return _entry("gate", best, says)
