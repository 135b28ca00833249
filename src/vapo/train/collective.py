"""Several processes, one decision: rank 0 decides about the whole window, in its declared order, and tells the others.

The declared order is that of the ranks, and within a rank that of its rows: the order in which a trainer gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from vapo.errors import VapoError

__all__ = ["decide_once"]

Row = TypeVar("Row")
Decision = TypeVar("Decision")


def decide_once(rows: Sequence[Row], decide: Callable[[list[Row]], Decision]) -> tuple[Decision, slice]:
    """Decide about every rank's rows on rank 0, and hear on every rank what was decided.

    Each rank calls it, with rows that can be pickled. What rank 0 raises, it raises; the others raise too, for a rank
    that goes on alone waits for ever.

    Args:
        rows: This rank's rows.
        decide: Called once, on rank 0, with the rows of all ranks.

    Returns:
        The decision, and where this rank's rows are among all rows.

    Raises:
        VapoError: On the other ranks, that rank 0 failed, and with what.

    Example:
        >>> decide_once([3, 4], lambda rows: [row > 3 for row in rows])
        ([False, True], slice(0, 2, None))
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return decide(list(rows)), slice(0, len(rows))
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * size
    dist.gather_object(list(rows), gathered if rank == 0 else None, dst=0)
    said: list[Any] = [None, None, None]
    fault: BaseException | None = None
    if rank == 0:
        lengths = [len(part) for part in gathered]
        try:
            said = ["decided", decide([row for part in gathered for row in part]), lengths]
        except Exception as error:
            fault, said = error, ["failed", f"{type(error).__name__}: {error}", lengths]
    dist.broadcast_object_list(said, src=0)
    if fault is not None:
        raise fault
    word, decision, lengths = said
    if word == "failed":
        msg = f"rank {rank}: rank 0 could not decide: {decision}"
        raise VapoError(msg)
    first = sum(lengths[:rank])
    return decision, slice(first, first + lengths[rank])
