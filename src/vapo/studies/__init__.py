"""Studies: every table and figure of the paper, from rows kept for each seed, with the paper's values beside ours."""

from __future__ import annotations

import importlib

from vapo.errors import InputError
from vapo.studies.framework import Study

__all__ = ["ROOMS", "load"]

ROOMS: tuple[str, ...] = ("replay", "severity", "stress", "frontier", "validity", "contracts")
"""The studies in the order in which `all` runs them: each is a room of this name that ends in `STUDY`."""


def load(name: str) -> Study:
    """Open the room of a study.

    Args:
        name: One of `ROOMS`.

    Raises:
        InputError: There is no such study.

    Example:
        >>> load("horoscope")
        Traceback (most recent call last):
            ...
        vapo.errors.InputError: study: expected one of ..., got 'horoscope'
    """
    if name not in ROOMS:
        expected = f"one of {', '.join(ROOMS)}"
        raise InputError(expected, repr(name), where="study")
    study: Study = importlib.import_module(f"vapo.studies.{name}").STUDY
    return study
