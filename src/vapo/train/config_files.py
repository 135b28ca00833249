"""Configuration files, and overrides of single fields."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from vapo.errors import InputError
from vapo.protocol import read_toml

__all__ = ["apply_override", "read_tables"]


def apply_override(data: dict[str, Any], text: str) -> None:
    """Change one field of nested tables in place; tables that are not there yet are made.

    Example:
        >>> data = {"regime": {"updates": 25}}
        >>> apply_override(data, "regime.updates=5"), apply_override(data, "primary.kind=symmetric"), data
        (None, None, {'regime': {'updates': 5}, 'primary': {'kind': 'symmetric'}})
    """
    key, sign, given = text.partition("=")
    if not sign or not key:
        expected = "an override of the form key.sub=value"
        raise InputError(expected, repr(text))
    try:
        value = tomllib.loads(f"x = {given}")["x"]
    except tomllib.TOMLDecodeError:
        value = given  # a text without its quotation marks
    *path, last = key.split(".")
    place: Any = data
    for part in path:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            expected = "the name of a field"
            raise InputError(expected, f"'{last}' in {text!r}")
    place[last] = value


def read_tables(path: str | Path) -> dict[str, Any]:
    """Read a file of nested tables: .toml, .yaml or .yml.

    Raises:
        InputError: The file cannot be read, or holds what it must not.
    """
    file = Path(path)
    if file.suffix.lower() in (".yaml", ".yml"):
        data = _read_yaml(file)
    elif file.suffix.lower() == ".toml":
        data = read_toml(file)
    else:
        expected = "a configuration that ends in .toml, .yaml or .yml"
        raise InputError(expected, file.name)
    return data


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        expected = "PyYAML to read it (pip install pyyaml), or a .toml file"
        raise InputError(expected, "no such library installed", where=str(file)) from None
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        expected = "a readable YAML file"
        raise InputError(expected, str(error), where=str(file)) from None
    if not isinstance(data, dict):
        expected = "a table of fields"
        raise InputError(expected, repr(data)[:80], where=str(file))
    return data
