"""Options that come by name from a file or a command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vapo.errors import InputError

__all__ = ["call_with"]

Made = TypeVar("Made")


def call_with(call: Callable[..., Made], options: Mapping[str, Any], what: str) -> Made:
    """Call something with options out of a file, whose values may be of any kind.

    Args:
        call: What is called.
        options: What it is called with.
        what: What messages call it.

    Raises:
        InputError: It does not take such an option, wants one that it did not get, or got one of another kind.

    Example:
        >>> call_with(lambda size, seed=0: size + seed, {"size": 3}, "the sampler")
        3
        >>> call_with(lambda size, seed=0: size + seed, {"sise": 3}, "the sampler")
        Traceback (most recent call last):
        ...
        vapo.errors.InputError: expected options that the sampler takes, got missing a required argument: 'size'
    """
    try:
        inspect.signature(call).bind(**options)
        return call(**options)
    except (TypeError, AttributeError) as error:
        expected = f"options that {what} takes"
        raise InputError(expected, str(error)) from error
