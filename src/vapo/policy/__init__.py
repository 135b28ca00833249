"""Accept, appeal or abstain: policies, families of them, and the one function that decides."""

from vapo.policy.build import build_family
from vapo.policy.decide import Actions, Answers, Requests, ask, decide, settle
from vapo.policy.model import ABOVE_ALL, Action, Family, Policy, Reason, Thresholds
from vapo.policy.observed import ObservedThreshold

__all__ = [
    "ABOVE_ALL",
    "Action",
    "Actions",
    "Answers",
    "Family",
    "ObservedThreshold",
    "Policy",
    "Reason",
    "Requests",
    "Thresholds",
    "ask",
    "build_family",
    "decide",
    "settle",
]
