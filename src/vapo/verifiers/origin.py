"""Where a verdict comes from: an id, and a digest over code, libraries and configuration."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError
from vapo.records import Source

__all__ = ["library_version", "source_of"]


def library_version(name: str) -> str:
    """The installed version of a library that a verifier cannot do without; of Python itself, major and minor.

    Raises:
        InputError: If it is not installed; the message says how to get it.

    Example:
        >>> library_version("numpy") >= "2"
        True
    """
    if name == "python":
        return ".".join(map(str, sys.version_info[:2]))
    try:
        return version(name)
    except PackageNotFoundError:
        expected = f"the library {name} (pip install 'audit-first-vapo[verifiers]')"
        got = "no such library installed"
        raise InputError(expected, got) from None


def source_of(
    name: str, config: dict[str, Any], *, modules: Sequence[str], libraries: Sequence[str] = ()
) -> Source:
    """Name a verifier by everything that its verdicts depend on.

    Args:
        name: The id; it should mean something to a reader of a certificate.
        config: Its settings, as plain JSON data.
        modules: Modules of this package whose code decides; their text goes into the digest.
        libraries: Installed distributions that decide, or `python`; their versions go into the digest.

    Raises:
        InputError: If a library is missing, or if the settings are no plain JSON data.

    Example:
        >>> one = source_of("rule", {"digits": 2}, modules=["vapo.verifiers.origin"])
        >>> two = source_of("rule", {"digits": 3}, modules=["vapo.verifiers.origin"])
        >>> one.id == two.id, one.digest == two.digest
        (True, False)
    """
    parts = {
        "name": name,
        "config": config,
        "code": {module: _text_digest(module) for module in sorted(modules)},
        "libraries": {library: library_version(library) for library in sorted(libraries)},
        "unicode": _unicode_version(),
    }
    return Source(name, sha256_hex(canonical_json(parts)))


def _text_digest(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        expected = "a loaded module with a file"
        raise InputError(expected, module, where="source")
    return sha256_hex(Path(file).read_bytes())


def _unicode_version() -> str:
    import unicodedata

    return unicodedata.unidata_version
