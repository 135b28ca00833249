"""How far an admitted proposal moves the learner: trust, clip and KL, after the direction is settled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from vapo._internal.arrays import floats, signs
from vapo.errors import InputError

__all__ = ["Actuator", "Surfaces", "Updates", "Variant"]

Variant = Literal["identity", "static", "trust", "clip-kl", "full"]

# Whether the score moves the trust weight, and whether it moves the clip radius and the KL price.
_MOVED: dict[Variant, tuple[bool, bool]] = {
    "identity": (False, False),
    "static": (False, False),
    "trust": (True, False),
    "clip-kl": (False, True),
    "full": (True, True),
}

# Surfaces are affine in the score and at most 1 in size: rounding moves them by a few units of 1e-16.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Surfaces:
    """The three control surfaces of each record.

    Attributes:
        trust: Weight of the clipped proposal.
        radius: Largest ratio change that is let through.
        kl_price: What a unit of KL costs.
    """

    trust: npt.NDArray[np.float64]
    radius: npt.NDArray[np.float64]
    kl_price: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Updates:
    """What the actuator does with each record.

    Attributes:
        magnitude: m, never negative; 0 where the record abstained or the KL price ate the proposal.
        update: The signed update, magnitude times final sign.
        admitted: Whether the final sign is not 0.
        unit: Ratio change that an advantage of 1 proposes.
    """

    magnitude: npt.NDArray[np.float64]
    update: npt.NDArray[np.float64]
    admitted: npt.NDArray[np.bool_]
    unit: float

    @property
    def coefficient(self) -> npt.NDArray[np.float64]:
        """What a learner multiplies each record's score-function term with."""
        return self.update / self.unit

    @property
    def coverage(self) -> float | None:
        """Share of records that were admitted, applied or not; none without records."""
        return float(np.mean(self.admitted)) if self.admitted.size else None

    @property
    def applied_rate(self) -> float | None:
        """Share of records whose update is not 0; none without records."""
        return float(np.mean(self.update != 0.0)) if self.update.size else None

    @property
    def zero_magnitude_rate(self) -> float | None:
        """Share of records that were admitted and yet move nothing; none without records."""
        return float(np.mean(self.admitted & (self.magnitude == 0.0))) if self.admitted.size else None


@dataclass(frozen=True, slots=True)
class Actuator:
    """Bounded magnitude control that cannot turn an admitted direction round.

    With d = min(delta_r, radius), an admitted record moves by m = max(0, trust * d - kl_price * kl).
    The variant says which surfaces follow the score; `identity` lets delta_r through untouched, as a plain
    learner would.

    Attributes:
        variant: `identity`, `static`, `trust`, `clip-kl` or `full`.
        trust_min: Trust weight (w) at score 0, where the variant moves it; it is 1 at score 1.
        radius_min: Clip radius (epsilon) at score 0, where the variant moves it.
        radius_max: Clip radius at score 1.
        kl_price_min: KL price (beta) at score 1.
        kl_price_max: KL price at score 0, where the variant moves it.
        unit: Ratio change that an advantage of 1 proposes.

    Example:
        >>> updates = Actuator("full").magnitude(
        ...     score=[1.0, 0.5, 0.5], delta_r=[0.3, 0.3, 0.1], kl=[0.01, 0.01, 0.01], sign=[1, -1, 0])
        >>> updates.update.round(6).tolist()
        [0.1999, -0.05795, 0.0]
    """

    variant: Variant = "full"
    trust_min: float = 0.10
    radius_min: float = 0.02
    radius_max: float = 0.20
    kl_price_min: float = 0.01
    kl_price_max: float = 0.50
    unit: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.variant, str) or self.variant not in _MOVED:
            expected = f"one of {', '.join(get_args(Variant))}"
            raise InputError(expected, repr(self.variant), where="argument 'variant'")
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                expected = "a finite number"
                raise InputError(expected, repr(value), where=f"argument '{field.name}'")
        if not 0.0 <= self.trust_min <= 1.0:
            expected = "a weight in [0, 1]"
            raise InputError(expected, repr(self.trust_min), where="argument 'trust_min'")
        for name in ("radius", "kl_price"):
            low, high = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            if not 0.0 <= low <= high:
                expected = f"0 <= {name}_min <= {name}_max"
                raise InputError(
                    expected, f"{low!r} and {high!r}", where=f"arguments '{name}_min', '{name}_max'"
                )
        if self.unit <= 0.0:
            expected = "a positive number"
            raise InputError(expected, repr(self.unit), where="argument 'unit'")

    @property
    def magnitude_max(self) -> float:
        """The largest magnitude that this actuator can give; infinite for `identity`.

        Example:
            >>> Actuator("full").magnitude_max
            0.2
        """
        return math.inf if self.variant == "identity" else self.radius_max

    def surfaces(self, score: npt.ArrayLike) -> Surfaces:
        """The control surfaces at each score.

        Args:
            score: Trust scores in [0, 1].

        Example:
            >>> Actuator("trust").surfaces([0.0, 1.0]).trust.tolist()
            [0.1, 1.0]
        """
        score = floats("score", score, low=0.0, high=1.0)
        distrust = 1.0 - score
        still = np.zeros_like(score)
        if self.variant == "identity":
            # No clip and no KL price: min(delta_r, inf) * 1 - 0 * kl is delta_r to the bit.
            return Surfaces(still + 1.0, still + math.inf, still)
        moves_trust, moves_radius = _MOVED[self.variant]
        trust = 1.0 - (1.0 - self.trust_min) * distrust if moves_trust else still + 1.0
        if moves_radius:
            radius = self.radius_max - (self.radius_max - self.radius_min) * distrust
            kl_price = self.kl_price_min + (self.kl_price_max - self.kl_price_min) * distrust
        else:
            radius, kl_price = still + self.radius_max, still + self.kl_price_min
        return self.check(Surfaces(trust, radius, kl_price))

    def check(self, surfaces: Surfaces) -> Surfaces:
        """Refuse surfaces outside their intervals; the rest come back without their rounding errors.

        Args:
            surfaces: Computed, or read back from a trace.

        Raises:
            InputError: A surface left its interval, which points at a wrong replay and not at a policy.

        Example:
            >>> import numpy as np
            >>> wrong = Surfaces(np.array([0.05]), np.array([0.1]), np.array([0.1]))
            >>> Actuator().check(wrong)
            Traceback (most recent call last):
                ...
            vapo.errors.InputError: surface 'trust': position 0: expected a value in [0.1, 1], got 0.05
        """
        if self.variant == "identity":
            intervals = ((1.0, 1.0), (math.inf, math.inf), (0.0, 0.0))
        else:
            intervals = (
                (self.trust_min, 1.0),
                (self.radius_min, self.radius_max),
                (self.kl_price_min, self.kl_price_max),
            )
        columns = [
            _inside(field.name, getattr(surfaces, field.name), *interval)
            for field, interval in zip(dataclasses.fields(Surfaces), intervals, strict=True)
        ]
        return Surfaces(*columns)

    def magnitude(
        self,
        score: npt.ArrayLike,
        delta_r: npt.ArrayLike | None,
        kl: npt.ArrayLike | None,
        sign: npt.ArrayLike,
    ) -> Updates:
        """Magnitudes and signed updates of decided records.

        Args:
            score: Trust scores in [0, 1].
            delta_r: Proposed ratio changes, 0 or more. Without them there is nothing to scale.
            kl: Measured KL, 0 or more; only `identity` can do without.
            sign: Final signs after the gate, 0 where it abstained.

        Raises:
            InputError: A column is missing, or holds what it must not.

        Example:
            >>> Actuator("identity").magnitude([0.2, 0.9], [0.3, 0.1], None, [0, -1]).update.tolist()
            [0.0, -0.1]
        """
        if delta_r is None:
            expected = "a proposed ratio change for each record: without it they are judged, not scaled"
            raise InputError(expected, "none", where="argument 'delta_r'")
        final = signs("sign", sign)
        proposed = floats("delta_r", delta_r, length=final.size, low=0.0)
        surfaces = self.surfaces(floats("score", score, length=final.size, low=0.0, high=1.0))
        if kl is None and self.variant != "identity":
            expected = "the measured KL of each record: this variant puts a price on it"
            raise InputError(expected, "none", where="argument 'kl'")
        paid = np.zeros(final.size) if kl is None else floats("kl", kl, length=final.size, low=0.0)
        clipped = np.minimum(proposed, surfaces.radius)
        magnitude = np.maximum(0.0, surfaces.trust * clipped - surfaces.kl_price * paid)
        magnitude[final == 0] = 0.0
        # -1 * 0.0 is -0.0, whose bytes differ from those of 0.0 although the numbers are equal.
        update: npt.NDArray[np.float64] = final.astype(np.float64) * magnitude + 0.0
        return Updates(magnitude, update, final != 0, self.unit)

    def proposal(self, advantage: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The ratio change that a learner's advantages propose.

        Args:
            advantage: Advantages, computed from all observed verdicts before the gate.

        Example:
            >>> Actuator().proposal([-2.0, 0.5]).tolist()
            [0.2, 0.05]
        """
        return self.unit * np.abs(floats("advantage", advantage))

    def state_dict(self) -> dict[str, Any]:
        """Everything that fixes this actuator, ready for JSON.

        Example:
            >>> Actuator.from_state_dict(Actuator("trust").state_dict()) == Actuator("trust")
            True
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Actuator:
        """The actuator that `state_dict` described.

        Args:
            state: Field names and values; fields left out take their defaults.

        Example:
            >>> Actuator.from_state_dict({"variant": "static"}).variant
            'static'
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(state) - known):
            expected = f"fields among {', '.join(sorted(known))}"
            raise InputError(expected, ", ".join(map(str, unknown)), where="argument 'state'")
        return cls(**state)


def _inside(name: str, values: npt.NDArray[np.float64], low: float, high: float) -> npt.NDArray[np.float64]:
    fits = (values >= low - _ROUNDING) & (values <= high + _ROUNDING)
    if not fits.all():
        row = int(np.argmin(fits))
        expected = f"a value in [{low:g}, {high:g}]"
        raise InputError(expected, f"{values[row]:g}", where=f"surface '{name}': position {row}")
    return np.clip(values, low, high)
