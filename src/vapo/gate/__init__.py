"""A certificate at work: new records in, decisions out, and a watch over what they lead to."""

from vapo.gate.admit import Gate
from vapo.gate.batch import Decisions
from vapo.gate.replay import replay_run
from vapo.gate.watch import Watch, join_spotchecks, watch

__all__ = ["Decisions", "Gate", "Watch", "join_spotchecks", "replay_run", "watch"]
