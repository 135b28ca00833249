"""Options that come by name from a file or a command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from vapo.errors import InputError

__all__ = ["check_options"]


def check_options(call: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    """Make sure that something takes these options by name, before it is called.

    Args:
        call: What will be called.
        options: What it will be called with.
        what: What messages call it.

    Raises:
        InputError: Naming the first option that it does not take, or that it needs and did not get.

    Example:
        >>> check_options(lambda size, seed=0: None, {"size": 3}, "the sampler")
        >>> check_options(lambda size, seed=0: None, {"sise": 3}, "the sampler")
        Traceback (most recent call last):
        ...
        vapo.errors.InputError: expected options that the sampler takes, got missing a required argument: 'size'
    """
    try:
        inspect.signature(call).bind(**options)
    except TypeError as error:
        expected = f"options that {what} takes"
        raise InputError(expected, str(error)) from None
