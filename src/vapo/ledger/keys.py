"""Ed25519 keys in files, and the one meaning that a signature has in this house.

A key is a pair of files: the private half as PKCS8 in PEM, readable by its owner only, and beside it,
ending in `.pub`, the public half as C2SP signed notes write it: `name+key id+base64`. A name says whose
key it is; a URL without a scheme is best.

Ed25519 leaves some signatures to the verifier's taste. Here one is good only if S is below the group's
order, the points R and A are canonically encoded and not of small order, and the equation holds without
the cofactor.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from vapo._internal.keyed import sha256_hex
from vapo._internal.strict import base64_text, from_base64
from vapo.errors import InputError, IntegrityError

__all__ = [
    "COSIGNS",
    "SIGNS",
    "SigningKey",
    "VerifierKey",
    "load_key",
    "load_verifiers",
    "new_key",
    "note_key_id",
    "public_path",
    "read_private",
    "read_public",
    "verify_ed25519",
    "write_pair",
]

SIGNS = 0x01
"""Kind of a key that signs the text of a note as it is."""
COSIGNS = 0x04
"""Kind of a key that signs a checkpoint together with a time, as a witness does."""

_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_Y_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _Y_OF_ORDER_8, _PRIME - _Y_OF_ORDER_8})
_MOST_NAME = 255
_MOST_FILE = 1 << 16


def _sound_point(encoded: bytes) -> bool:
    y = int.from_bytes(encoded, "little") & (2**255 - 1)
    return y < _PRIME and y not in _SMALL_ORDER


def verify_ed25519(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature is good, in the strict sense that this module states.

    Example:
        >>> key = SigningKey.from_seed("example.org/run", bytes(32))
        >>> verify_ed25519(key.verifier.public, key.sign(b"text"), b"text")
        True
    """
    if len(public) != 32 or len(signature) != 64:
        return False
    if not _sound_point(public) or not _sound_point(signature[:32]):
        return False
    if int.from_bytes(signature[32:], "little") >= _ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _check_name(name: str) -> None:
    fits = 0 < len(name.encode("utf-8", "replace")) <= _MOST_NAME and name.isprintable()
    if not fits or "+" in name or any(character.isspace() for character in name):
        expected = "a key name of printable characters without spaces and '+', such as example.org/runs"
        raise InputError(expected, repr(name[:60]))


def note_key_id(name: str, kind: int, public: bytes) -> bytes:
    """The four bytes by which a signature line names its key."""
    return bytes.fromhex(sha256_hex(name.encode() + b"\n" + bytes([kind]) + public)[:8])


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """The public half of a key.

    Example:
        >>> key = SigningKey.from_seed("example.org/run", bytes(32)).verifier
        >>> key.text
        'example.org/run+e2126e42+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop'
        >>> VerifierKey.parse(key.text) == key
        True
    """

    name: str
    public: bytes
    """The 32 bytes of the public key."""
    kind: int = SIGNS
    """What it signs: `SIGNS` or `COSIGNS`."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.kind not in (SIGNS, COSIGNS):
            expected = "a key of kind 1 (signs) or 4 (cosigns)"
            raise InputError(expected, str(self.kind), where=self.name)
        if len(self.public) != 32 or not _sound_point(self.public):
            expected = "an Ed25519 public key of 32 bytes, canonical and not of small order"
            raise InputError(expected, self.public.hex()[:80], where=self.name)

    @property
    def key_id(self) -> bytes:
        """The four bytes by which a signature line names this key."""
        return note_key_id(self.name, self.kind, self.public)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, in hexadecimal: the key's name in envelopes."""
        return sha256_hex(self.public)

    @property
    def text(self) -> str:
        """The key in one line, as it stands in a `.pub` file."""
        return f"{self.name}+{self.key_id.hex()}+{base64_text(bytes([self.kind]) + self.public)}"

    @property
    def as_witness(self) -> VerifierKey:
        """The same key as one that cosigns."""
        return replace(self, kind=COSIGNS)

    @classmethod
    def parse(cls, text: str, *, where: str = "public key") -> VerifierKey:
        """Read a key from its one line.

        Raises:
            InputError: If it is not one.
        """
        parts = text.split("+", 2)
        try:
            material = from_base64(parts[-1], where, size=33)
        except IntegrityError:
            material = b""
        if len(parts) != 3 or not material:
            expected = "a public key in one line: name+key id+base64"
            raise InputError(expected, repr(text[:60]), where=where)
        key = cls(parts[0], material[1:], material[0])
        if key.key_id.hex() != parts[1]:
            expected = f"key id {key.key_id.hex()} for this name and key"
            raise InputError(expected, repr(parts[1][:60]), where=where)
        return key


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that can sign."""

    name: str
    _private: Ed25519PrivateKey = field(repr=False)

    def __post_init__(self) -> None:
        _check_name(self.name)

    @classmethod
    def from_seed(cls, name: str, seed: bytes) -> SigningKey:
        """The key that 32 bytes of randomness stand for."""
        return cls(name, Ed25519PrivateKey.from_private_bytes(seed))

    @property
    def verifier(self) -> VerifierKey:
        """The public half, as a signer."""
        return VerifierKey(self.name, self._raw())

    @property
    def witness(self) -> VerifierKey:
        """The public half, as a witness that cosigns."""
        return VerifierKey(self.name, self._raw(), COSIGNS)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, in hexadecimal."""
        return sha256_hex(self._raw())

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of a signature; the same message always gets the same."""
        return self._private.sign(message)

    def _raw(self) -> bytes:
        return self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def public_path(path: str | Path) -> Path:
    """Where the public half lies beside a private key."""
    return Path(f"{path}.pub")


def new_key(path: str | Path, name: str) -> VerifierKey:
    """Make an Ed25519 key: the private half at `path`, the public half beside it in `path.pub`.

    Args:
        path: Where the private half goes; nothing that is there is ever overwritten.
        name: Whose key it is, such as example.org/runs.

    Returns:
        The public half.

    Raises:
        InputError: If the name is not fit, or one of the files is there already.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     public = new_key(f"{folder}/run.key", "example.org/runs")
        ...     load_key(f"{folder}/run.key").verifier == public
        True
    """
    key = SigningKey(name, Ed25519PrivateKey.generate())
    write_pair(path, key._private, key.verifier.text)
    return key.verifier


def load_key(path: str | Path, name: str | None = None) -> SigningKey:
    """Read a private key, whose name is taken from the `.pub` file beside it unless it is given.

    Raises:
        InputError: If there is none, it is open to others, or the two files are not of one key.
    """
    private = read_private(path)
    if not isinstance(private, Ed25519PrivateKey):
        expected = "an Ed25519 private key"
        raise InputError(expected, type(private).__name__, where=str(path))
    if name is not None:
        return SigningKey(name, private)
    beside = load_verifiers(public_path(path))
    key = SigningKey(beside[0].name, private)
    if key.verifier not in beside:
        expected = f"the public half of {path}"
        raise InputError(expected, "another key", where=str(public_path(path)))
    return key


def load_verifiers(path: str | Path) -> tuple[VerifierKey, ...]:
    """Read the public keys of a file, one a line; empty lines and lines that begin with # are passed over.

    Raises:
        InputError: If a line is not a key, or no line is.
    """
    lines = read_public(path)
    keys = tuple(VerifierKey.parse(line, where=f"{path}: line {number}") for number, line in lines)
    if not keys:
        expected = "a public key in one line: name+key id+base64"
        raise InputError(expected, "none", where=str(path))
    return keys


def read_public(path: str | Path) -> list[tuple[int, str]]:
    """The lines of a file of public keys that hold something, with their numbers."""
    try:
        text = _read(Path(path)).decode("utf-8")
    except UnicodeDecodeError:
        expected = "UTF-8"
        raise InputError(expected, "other bytes", where=str(path)) from None
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def write_pair(path: str | Path, private: Ed25519PrivateKey | X25519PrivateKey, public: str) -> None:
    """Write a private key that only its owner may read, and its public half beside it.

    A file appears whole or not at all, and never in the place of another.
    """
    path = Path(path)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for place in (path, public_path(path)):
        if os.path.lexists(place):
            raise _taken(place)
    _create(path, pem, 0o600)
    try:
        _create(public_path(path), public.encode() + b"\n", 0o644)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def read_private(path: str | Path) -> Ed25519PrivateKey | X25519PrivateKey:
    """Read a private key after making sure that nobody but its owner can."""
    try:
        key = load_pem_private_key(_read(Path(path), private=True), None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        if isinstance(error, InputError):
            raise
        expected = "an unencrypted private key in PEM"
        raise InputError(expected, "something else", where=str(path)) from None
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        expected = "an Ed25519 or X25519 private key"
        raise InputError(expected, type(key).__name__, where=str(path))
    return key


def _taken(path: Path) -> InputError:
    expected = "a free place, for keys are never overwritten"
    return InputError(expected, "a file that is there already", where=str(path))


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        handle, temporary = tempfile.mkstemp(prefix=".key-", dir=path.parent)
    except OSError as error:
        expected = "a folder that can be written to"
        raise InputError(expected, error.strerror or str(error), where=str(path.parent)) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(handle, mode)
            stream.write(data)
            stream.flush()
            os.fsync(handle)
        # A link is made only where nothing is, unlike a rename.
        os.link(temporary, path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        expected = "a file system that can link files"
        raise InputError(expected, error.strerror or str(error), where=str(path)) from None
    finally:
        with suppress(OSError):
            Path(temporary).unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path, *, private: bool = False) -> bytes:
    kind = "private" if private else "public"
    try:
        # Without waiting, so that a pipe in the key's place cannot hold the program up.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        expected = f"a {kind} key file"
        raise InputError(expected, getattr(error, "strerror", None) or str(error), where=str(path)) from None
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST_FILE:
            expected = f"a {kind} key file of at most {_MOST_FILE} bytes"
            raise InputError(expected, "something else", where=str(path))
        if private and state.st_mode & 0o077:
            expected = f"a private key that only its owner may read (chmod 600 {path})"
            raise InputError(expected, f"mode {stat.S_IMODE(state.st_mode):03o}", where=str(path))
        return os.read(handle, _MOST_FILE)
    finally:
        os.close(handle)
