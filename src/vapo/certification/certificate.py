"""The certificate as a value, as an in-toto statement, and in its envelope."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vapo._internal.keyed import canonical_json
from vapo.errors import InputError, IntegrityError
from vapo.ledger import Ledger
from vapo.ledger.envelope import CERTIFICATE_TYPE, IN_TOTO, Envelope, Statement
from vapo.ledger.keys import VerifierKey
from vapo.policy import Policy

__all__ = ["Certificate", "finite", "open_certificate"]


def finite(value: float) -> float | None:
    """A number as JSON can hold it: None where it is infinite or undefined."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a stage proved, or why it proved nothing.

    Example:
        >>> Certificate({"status": "refused", "selected": None, "nearest": {"index": 3}}).policy is None
        True
    """

    body: Mapping[str, Any]
    """Everything that the certificate says, as plain data."""

    @property
    def certified(self) -> bool:
        """Whether a policy was certified."""
        return bool(self.body["status"] == "certified")

    @property
    def policy(self) -> Policy | None:
        """The certified policy; None means: abstain from everything."""
        selected = self.body["selected"]
        if selected is None:
            return None
        return Policy.from_dict({name: value for name, value in selected.items() if name != "index"})

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of the selected candidate, or of the nearest one."""
        return dict(self.body["counts"])

    def bounds(self, claim: str | None = None) -> Mapping[str, float | None]:
        """Limits of the selected or nearest candidate, under the deciding claim or another."""
        return dict(self.body["bounds"][claim or self.body["claim"]])

    def __str__(self) -> str:
        """One paragraph that says what was proved."""
        body, counts = self.body, self.body["counts"]
        claim, rho, delta = body["claim"], body["rho"], body["delta"]
        coverage = counts["admitted"] / counts["n"]
        if not self.certified:
            near = body["nearest"]
            return (
                f"REFUSED ({claim}, rho {rho:g}, delta {delta:g}): no candidate met every requirement, so the gate "
                f"abstains from everything. Nearest was candidate {near['index']} ({near['failing']}): "
                f"{counts['harmful']} harmful of {counts['admitted']} admitted, coverage {coverage:.3f}."
            )
        # Read as a statement about the population, the limit is wider by what the reach costs.
        reach = body["reach_detail"]
        risk = body["bounds"][claim]["risk_upper"] + (reach["extra_width"] or 0.0)
        # The width of case c is an interval of its own, which can be wrong too.
        wrong = 2 * delta if reach["case"] == "c" else delta
        return (
            f"CERTIFIED ({claim}, reach {body['reach']}): with probability at least {1 - wrong:g} "
            f"at most {risk:.4f} of what policy {body['selected']['index']} admits is harmful (allowed {rho:g}); "
            f"coverage {coverage:.3f}, {counts['harmful']} harmful of {counts['admitted']} admitted in "
            f"{counts['n']} records."
        )

    @classmethod
    def read(cls, run: str | Path) -> Certificate:
        """Read the current certificate of a run folder.

        Raises:
            IntegrityError: If it is not the one that the run's log recorded.
        """
        ledger = Ledger.read(run)
        return cls.of(ledger)

    @classmethod
    def of(cls, ledger: Ledger) -> Certificate:
        """The current certificate of an open run."""
        from vapo.ledger import EventKind

        event = ledger.last(EventKind.ISSUED, EventKind.REFUSED)
        if event is None:
            expected = "a run with a certificate"
            raise InputError(expected, "none yet", where=str(ledger.path))
        return open_certificate(canonical_json(ledger.json(event.body["envelope"])))

    def statement(self) -> Statement:
        """The certificate as an in-toto Statement about the frozen trace and the labels."""
        subjects = {"trace": self.body["trace_root"], "labels": self.body["labels_digest"]}
        return Statement(subjects, CERTIFICATE_TYPE, self.body)


def open_certificate(data: bytes, keys: Collection[VerifierKey] = ()) -> Certificate:
    """Take a certificate out of its envelope.

    Args:
        data: What `certificate.json` holds.
        keys: Keys of which one must have signed it; without any, signatures are not looked at.

    Raises:
        IntegrityError: If it is malformed or, with keys, carries no good signature of one.
    """
    envelope = Envelope.parse(data, payload_type=IN_TOTO, where="certificate.json")
    if keys:
        envelope.verify(list(keys), where="certificate.json")
    statement = Statement.parse(envelope.payload, predicate_type=CERTIFICATE_TYPE, where="certificate.json")
    certificate = Certificate(statement.predicate)
    try:
        # Whoever signed it, or nobody, can have put anything there; what is read of it later is read once here.
        _ = (str(certificate), certificate.policy, certificate.counts, certificate.bounds())
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        msg = f"certificate.json: does not hold what a certificate holds ({type(error).__name__}: {error})"
        raise IntegrityError(msg) from None
    return certificate
