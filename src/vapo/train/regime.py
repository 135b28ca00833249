"""A regime: the rollouts of one generating checkpoint, with everything about them that is fixed when it begins.

Verdicts, advantages and decisions of all its windows are there before the first update of the regime. The gate so
writes one batch a regime and not one an update, and has written it before anything is learned from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vapo.actuator import Updates
from vapo.errors import IntegrityError
from vapo.train.arms_rewards import Rewarded
from vapo.train.batch import Admission
from vapo.train.models.base import Sampled
from vapo.train.noise_correction import ErrorRates
from vapo.train.resources_rows import appeal_calls
from vapo.train.rollouts import Drawn, cut, rows_of
from vapo.train.verdicts import Calls

__all__ = ["Lot", "Regime", "Windows"]

Bits = npt.NDArray[np.bool_]
Signs = npt.NDArray[np.int8]

_CALLS = ("primary", "further", "rewarding")


@dataclass(frozen=True, slots=True)
class Lot:
    """One window of a regime."""

    update: str
    """The update that it was made for."""
    batch: Sampled
    admission: Admission
    y: Signs
    z: Signs
    """Clean signs, for the ledger's risks only."""
    parsed: Bits
    finished: Bits
    primary: Calls
    further: Calls
    secondary: Calls
    labels: int
    """Clean labels that the arm was rewarded by."""

    @property
    def tokens(self) -> int:
        """Tokens of its completions."""
        return int(self.batch.lengths.sum())


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of a regime, row by row."""

    updates: list[str]
    batch: Sampled
    admission: Admission
    y: Signs
    z: Signs
    parsed: Bits
    finished: Bits
    labelled: Bits
    primary: Mapping[str, Calls]
    """Calls of the primary verifier, by update."""
    further: Mapping[str, Calls]
    rewarding: Mapping[str, Calls]
    """Secondary calls that rewards were made with, by update; those of admission are in its reasons."""

    @classmethod
    def of(cls, drawn: Drawn, rewarded: Rewarded, admission: Admission, z: Signs) -> Windows:
        """Put together what was drawn, rewarded and admitted."""
        parsed = np.array([answer is not None for answer in drawn.answers], np.bool_)
        return cls(
            drawn.updates,
            drawn.batch,
            admission,
            rewarded.y,
            z,
            parsed,
            drawn.finished,
            rewarded.labelled,
            drawn.primary,
            drawn.further,
            dict(rewarded.calls),
        )

    def lots(self) -> list[Lot]:
        """The windows one by one."""
        found = []
        for update, rows in rows_of(self.updates):
            part = self.admission.take(rows)
            found.append(
                Lot(
                    update=update,
                    batch=cut(self.batch, rows),
                    admission=part,
                    y=self.y[rows],
                    z=self.z[rows],
                    parsed=self.parsed[rows],
                    finished=self.finished[rows],
                    primary=self.primary[update],
                    further=self.further[update],
                    secondary=appeal_calls(part) + self.rewarding.get(update, Calls()),
                    labels=int(np.count_nonzero(self.labelled[rows])),
                )
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        """The windows as tensors and plain data, which can be read back without running any code."""
        admission, parts = self.admission, self.admission.updates
        batch = {f.name: getattr(self.batch, f.name) for f in fields(Sampled)}
        return {
            "updates": self.updates,
            "batch": batch,
            "reason": torch.from_numpy(admission.reason),
            "score": torch.from_numpy(np.array(admission.score, np.float64)),
            "magnitude": torch.from_numpy(parts.magnitude),
            "update": torch.from_numpy(parts.update),
            "admitted": torch.from_numpy(parts.admitted),
            "unit": parts.unit,
            "closed": admission.closed,
            "certificate": admission.certificate,
            "asked": None if admission.asked is None else torch.from_numpy(admission.asked),
            **{
                name: torch.from_numpy(getattr(self, name))
                for name in ("y", "z", "parsed", "finished", "labelled")
            },
            **{
                name: {update: calls.as_dict() for update, calls in getattr(self, name).items()}
                for name in _CALLS
            },
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Windows:
        """The inverse of `state_dict`."""

        def array(name: str) -> npt.NDArray[Any]:
            return np.asarray(state[name].numpy())

        updates = Updates(array("magnitude"), array("update"), array("admitted"), float(state["unit"]))
        admission = Admission(
            array("reason"),
            array("score"),
            updates,
            closed=state["closed"],
            certificate=state["certificate"],
            asked=None if state["asked"] is None else array("asked"),
        )
        return cls(
            updates=list(state["updates"]),
            batch=Sampled(**state["batch"]),
            admission=admission,
            y=array("y"),
            z=array("z"),
            parsed=array("parsed"),
            finished=array("finished"),
            labelled=array("labelled"),
            **{name: {update: Calls(**calls) for update, calls in state[name].items()} for name in _CALLS},
        )


@dataclass(frozen=True, slots=True)
class Regime:
    """What is fixed when a regime begins."""

    number: int
    facts: Mapping[str, Any]
    """What the ledger says when it opens."""
    rates: ErrorRates
    """What is known of the primary's errors behind its windows."""
    windows: Windows | None
    """None where the gate was closed before anything was generated."""

    @property
    def closed(self) -> str:
        """Why nothing is learned in this regime; empty where something may be."""
        return str(self.facts["stage"].get("closed", ""))

    @property
    def tokens(self) -> int:
        """Tokens that were generated for it, those of its buffer among them."""
        buffer = self.facts["stage"].get("buffer", {"tokens": 0})
        return int(buffer["tokens"]) + (0 if self.windows is None else int(self.windows.batch.mask.sum()))

    def state_dict(self) -> dict[str, Any]:
        """The regime as tensors and plain data."""
        windows = None if self.windows is None else self.windows.state_dict()
        return {
            "number": self.number,
            "facts": dict(self.facts),
            "rates": self.rates.as_dict(),
            "windows": windows,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Regime:
        """The inverse of `state_dict`.

        Raises:
            IntegrityError: It is not the state of a regime.
        """
        try:
            windows = None if state["windows"] is None else Windows.from_state_dict(state["windows"])
            return cls(int(state["number"]), state["facts"], ErrorRates(**state["rates"]), windows)
        except (KeyError, TypeError, AttributeError) as error:
            msg = f"not the state of a regime: {error!r}"
            raise IntegrityError(msg) from None
