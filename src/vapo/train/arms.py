"""The arms that are compared: each a small value, composed of a reward, an admission rule and an actuator.

An arm says nothing about tasks, models, channels or sizes; those are the configuration's, and equal for all arms. The
engine and the loop are the same for every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from vapo.actuator import Variant

__all__ = ["ARMS", "Arm", "Reward", "Rule"]

Reward = Literal["observed", "clean", "labelled", "augmented", "backward", "forward"]
"""Whose verdicts a learner is rewarded by, and how rewards are turned into advantages."""

Rule = Literal[
    "all", "labelled", "random", "first", "observed", "threshold", "certified", "random-appeal", "both-agree"
]
"""Which proposals may move the learner."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What an arm does with a proposal.

    Example:
        >>> ARMS["rc-vapo"].rule, ARMS["rc-vapo"].appeals, ARMS["rc-vapo"].actuator
        ('certified', True, 'full')
    """

    name: str
    says: str
    """What it does, in one line."""
    rule: Rule = "all"
    reward: Reward = "observed"
    actuator: Variant = "identity"
    appeals: bool = False
    """Whether its policies may ask the secondary verifier."""
    score: str = ""
    """What a threshold is set on; empty for the configured score. `CONTROL:name` is read from the controls."""
    follows: bool = False
    """Whether it is matched to a recorded rc-vapo run of the same seed."""

    @property
    def certified(self) -> bool:
        """Whether it works under a certificate."""
        return self.rule == "certified"

    @property
    def calibrates(self) -> bool:
        """Whether something of it is fixed on fresh calibration rollouts, with or without labels."""
        return self.rule in ("certified", "threshold", "observed")


_FULL: dict[str, Any] = {"appeals": True, "actuator": "full"}

_TABLE = (
    Arm("static", "applies every proposal: plain RLVR"),
    Arm("static-surfaces", "applies every proposal with the paper's static actuator", actuator="static"),
    Arm("matched-random", "as many as rc-vapo in the same update, at random", rule="random", follows=True),
    Arm(
        "matched-static", "as many as rc-vapo in the same update, the first by id", rule="first", follows=True
    ),
    Arm("observation-threshold", "the quantile gate on trust, KL and ratio; no certificate", rule="observed"),
    Arm("rc-threshold", "certified thresholds without appeals", rule="certified", actuator="static"),
    Arm("noise-corrected-backward", "rewards made unbiased by error rates from appeals", reward="backward"),
    Arm("noise-corrected-forward", "score terms weighted by the rate of false negatives", reward="forward"),
    Arm("verifier-augmentation", "asks the secondary wherever the primary said no", reward="augmented"),
    Arm(
        "random-appeal",
        "as many acceptances and appeals as rc-vapo, placed at random",
        rule="random-appeal",
        follows=True,
        **_FULL,
    ),
    Arm("always-secondary", "asks the secondary always, applies where both agree", rule="both-agree"),
    Arm("single-signal", "uncertified threshold on one signal", rule="threshold", score="CONTROL:signal"),
    Arm("confidence", "uncertified threshold on confidence", rule="threshold", score="signal:confidence"),
    Arm(
        "majority", "uncertified threshold on self-consistency", rule="threshold", score="signal:consistency"
    ),
    Arm("trust", "uncertified threshold on the configured score", rule="threshold"),
    Arm(
        "format-only", "uncertified threshold on completion alone", rule="threshold", score="signal:finished"
    ),
    Arm("no-certificate", "rc-vapo, nothing of it certified", rule="threshold", **_FULL),
    Arm("certificate-only", "certified, without appeals and actuator", rule="certified"),
    Arm("certificate-appeal", "certified with appeals, no actuator", rule="certified", appeals=True),
    Arm("certificate-actuator", "certified with actuator, no appeals", rule="certified", actuator="full"),
    Arm(
        "trust-only",
        "rc-vapo, only the trust surface moving",
        rule="certified",
        appeals=True,
        actuator="trust",
    ),
    Arm(
        "clip-kl-only",
        "rc-vapo, only radius and KL price",
        rule="certified",
        appeals=True,
        actuator="clip-kl",
    ),
    Arm(
        "vapo-legacy",
        "historical weighted score and actuator, uncertified threshold",
        rule="threshold",
        score="CONTROL:legacy_score",
        **_FULL,
    ),
    Arm("rc-vapo", "certified accept, appeal, abstain, and actuator", rule="certified", **_FULL),
    Arm(
        "label-matched",
        "trains on the labels that rc-vapo spent",
        rule="labelled",
        reward="labelled",
        follows=True,
    ),
    Arm("oracle", "clean labels everywhere: the ceiling, never a contender", reward="clean"),
)

ARMS: Mapping[str, Arm] = MappingProxyType({arm.name: arm for arm in _TABLE})
"""Every arm by name."""
