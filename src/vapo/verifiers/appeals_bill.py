"""What appeals cost: reserved, settled, failed, lost, and what was saved by having asked before."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Bill"]


@dataclass(frozen=True, slots=True)
class Bill:
    """What was asked and what it cost. Every record that was asked about is in exactly one of the six states.

    Example:
        >>> earlier = Bill(cap=9, asked=2, reserved=2, settled=2)
        >>> later = Bill(cap=9, asked=5, reserved=4, settled=4, hits=1)
        >>> later.since(earlier).asked, later.since(earlier).reserved, later.left
        (3, 2, 5)
    """

    cap: int
    """The most calls that may ever be reserved."""
    asked: int = 0
    """Records that were asked about."""
    reserved: int = 0
    """Calls taken from the cap, whatever came of them."""
    calls: int = 0
    """Those among them that may have been paid, as far as is known."""
    settled: int = 0
    """Records with a verdict of their own."""
    failed: int = 0
    """Records whose call gave no verdict."""
    lost: int = 0
    """Records whose call was in flight when the process died."""
    in_flight: int = 0
    """Records whose call is under way, or will be taken up again under its key."""
    refused: int = 0
    """Records for which no call was left."""
    hits: int = 0
    """Records whose content was asked about before, or beside them in the same batch."""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    hit_tokens_in: int = 0
    """What the hits would have cost, had they been calls."""
    hit_tokens_out: int = 0

    @property
    def left(self) -> int:
        """Calls that can still be reserved."""
        return max(0, self.cap - self.reserved)

    def since(self, earlier: Bill) -> Bill:
        """What came on top of an earlier bill of the same book."""
        now, then = asdict(self), asdict(earlier)
        return Bill(**{name: now[name] - then[name] for name in now if name != "cap"}, cap=self.cap)
