"""The run folder: an append-only log of events, columnar segments named by digest, and the labels' door."""

from vapo.ledger.log import Event, EventKind, merkle_root
from vapo.ledger.run import Ledger
from vapo.ledger.verify import Finding, Report, verify_run

__all__ = ["Event", "EventKind", "Finding", "Ledger", "Report", "merkle_root", "verify_run"]
