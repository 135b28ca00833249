"""Audit-first admission for reinforcement learning from imperfect verifiers.

Freeze what a policy would do, join the labels, certify, and only then let updates into the learner.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vapo import metrics
    from vapo.actuator import Actuator
    from vapo.certification import bounds
    from vapo.certification.certificate import Certificate
    from vapo.certification.flow import certify
    from vapo.certification.monitor import Monitor
    from vapo.certification.plan import plan
    from vapo.errors import VapoError
    from vapo.gate import Gate
    from vapo.ledger import Ledger
    from vapo.policy import Actions, Family, Policy, decide
    from vapo.protocol import Protocol
    from vapo.records import Labels, Records

__all__ = [
    "Actions",
    "Actuator",
    "Certificate",
    "Family",
    "Gate",
    "Labels",
    "Ledger",
    "Monitor",
    "Policy",
    "Protocol",
    "Records",
    "VapoError",
    "bounds",
    "certify",
    "decide",
    "metrics",
    "plan",
]

_ROOMS = {
    "Actions": "vapo.policy",
    "Actuator": "vapo.actuator",
    "Certificate": "vapo.certification.certificate",
    "Family": "vapo.policy",
    "Gate": "vapo.gate",
    "Labels": "vapo.records",
    "Ledger": "vapo.ledger",
    "Monitor": "vapo.certification.monitor",
    "Policy": "vapo.policy",
    "Protocol": "vapo.protocol",
    "Records": "vapo.records",
    "VapoError": "vapo.errors",
    "bounds": "vapo.certification",
    "certify": "vapo.certification.flow",
    "decide": "vapo.policy",
    "metrics": "vapo",
    "plan": "vapo.certification.plan",
}


def __getattr__(name: str) -> Any:
    """Open a room only when something in it is wanted, so that `vapo --help` need not load all of them."""
    if name not in _ROOMS:
        msg = f"module 'vapo' has no attribute {name!r}"
        raise AttributeError(msg)
    room = _ROOMS[name]
    if room == "vapo" or name == "bounds":
        value = importlib.import_module(f"{room}.{name}")
    else:
        value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
