"""The book of paid calls: a cap that is reserved before a call, and every answer kept, on disk.

A record that is asked about is one row. What it may cost is reserved, durably, before anything is sent, and is spent
whatever comes back, so that no order of events can spend more than the cap. What was answered before, by content and
source, costs nothing and is noted as a hit on the call that was paid.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError, IntegrityError, ProtocolError, StorageError
from vapo.ledger.disk import Disk
from vapo.records import Source
from vapo.verifiers.appeals_bill import Bill
from vapo.verifiers.base import Cost, Failure, Item, Outcome

__all__ = ["Asked", "Book"]

FILE = "calls.sqlite"
_TABLES = """
CREATE TABLE terms (format INTEGER NOT NULL, cap INTEGER NOT NULL) STRICT;
CREATE TABLE calls (
    key TEXT PRIMARY KEY, content TEXT NOT NULL, item TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL,
    honoured INTEGER NOT NULL, reserved INTEGER NOT NULL, calls INTEGER NOT NULL DEFAULT 0, verdict INTEGER,
    confidence REAL NOT NULL DEFAULT 1.0, failure TEXT, tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0.0, detail TEXT NOT NULL DEFAULT '',
    hit TEXT
) STRICT;
CREATE INDEX answered ON calls (content) WHERE verdict IS NOT NULL;
CREATE INDEX under_way ON calls (content) WHERE state = 'reserved';
"""
_COLUMNS = (
    "key", "content", "item", "source", "state", "reserved", "calls", "verdict", "confidence", "failure",
    "tokens_in", "tokens_out", "seconds", "detail", "hit",
)  # fmt: skip
_LOSE = (
    "UPDATE calls SET state = 'lost', failure = 'lost', calls = reserved, "
    "detail = 'in flight when the process died' WHERE state = 'reserved'"
)


class Asked(NamedTuple):
    """A record that somebody asks about."""

    key: str
    """Names this question of this record for good: asked again, it has what it had."""
    content: str
    """Digest of what is judged and by whom: equal digests have equal answers."""
    item: str
    """The record's id."""

    @classmethod
    def of(cls, source: Source, item: Item, *, by_id: bool = False) -> Asked:
        """The question whether an item is right, as a verifier is asked it.

        Args:
            source: The verifier.
            item: The item.
            by_id: Whether its verdicts depend on the record's id.

        Example:
            >>> source = Source("judge", "0" * 64)
            >>> one, two = (Asked.of(source, Item(name, "1 + 1 = ?", "2")) for name in "ab")
            >>> one.content == two.content, one.key == two.key
            (True, False)
        """
        texts = [item.question, item.completion, item.reference, item.id if by_id else ""]
        content = sha256_hex(canonical_json([source.digest, *map(_plain, texts)]))
        name = _plain(item.id)
        return cls(sha256_hex(canonical_json([content, name])), content, name)


class Book:
    """Calls and their answers in a folder of their own, with one writer.

    Args:
        folder: Where it is kept: outside run folders, in which every file is accounted for.
        cap: The most calls that may ever be reserved in this book, over all verifiers that share it.

    Raises:
        ProtocolError: The book was begun with another cap.
        LedgerLockedError: Another process has it open.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> with Book(folder.name, cap=1) as book:
        ...     todo = book.request([Asked("k1", "c1", "a"), Asked("k2", "c2", "b")], "judge", calls=1, honoured=True)
        ...     book.settle([("k1", Outcome(verdict=1))])
        ...     book.outcome("k1").verdict, str(book.outcome("k2").failure), book.bill().left
        (1, 'over_budget', 0)
        >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path, *, cap: int) -> None:
        if isinstance(cap, bool) or not isinstance(cap, int) or cap < 0:
            expected = "a whole number of calls, 0 or more"
            raise InputError(expected, repr(cap), where="argument 'cap'")
        self.path = Path(folder)
        self.cap = cap
        self._lock = threading.Condition()
        self._flying: set[str] = set()
        self._disk = Disk(self.path)
        self._disk.lock()
        try:
            with self._typed():
                # One thread at a time uses the connection, whichever it is.
                self._sql = sqlite3.connect(self.path / FILE, isolation_level=None, check_same_thread=False)
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        # Readers in other processes are kept out, so that no shared memory file is needed on any file system.
        self._sql.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._sql.execute("PRAGMA journal_mode = WAL")
        # What was committed survives power loss, not only the end of the process.
        self._sql.execute("PRAGMA synchronous = FULL")
        if not self._sql.execute("SELECT 1 FROM sqlite_master WHERE name = 'terms'").fetchone():
            with self._transaction():
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._sql.execute(statement)
                self._sql.execute("INSERT INTO terms VALUES (1, ?)", (self.cap,))
        version, cap = self._sql.execute("SELECT format, cap FROM terms").fetchone()
        if (version, cap) != (1, self.cap):
            msg = f"{self.path}: the book was begun with a cap of {cap} calls (format {version}), not {self.cap}"
            raise ProtocolError(msg)
        with self._transaction():
            self._sql.execute(f"{_LOSE} AND NOT honoured")
        self._spent = self._total()

    def _total(self) -> int:
        return int(self._sql.execute("SELECT coalesce(sum(reserved), 0) FROM calls").fetchone()[0])

    def __enter__(self) -> Book:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to the book."""
        with self._lock:
            if hasattr(self, "_sql"):
                self._sql.close()
            self._disk.unlock()

    def request(
        self, asked: Sequence[Asked], source: str, *, calls: int, honoured: bool
    ) -> list[tuple[int, str]]:
        """Put down a batch of questions, with the calls that they take; all of it is on disk when this returns.

        Questions whose content is under way in an earlier batch wait for its answer first: so it makes no difference
        when that arrives.

        Args:
            asked: The questions, in their declared order.
            source: Id of the verifier.
            calls: The most calls that one of them may cost.
            honoured: Whether a call that is in flight at a crash may be made again under its key.

        Returns:
            Numbers of the questions that are to be asked now, each with the key to ask and to settle it under.
        """
        with self._lock:
            contents = {question.content for question in asked}
            self._lock.wait_for(lambda: not contents & self._flying)
            now: dict[str, int] = {}
            leaders: dict[str, str] = {}
            spent = self._spent
            with self._typed(), self._transaction():
                for number, question in enumerate(asked):
                    state, key = self._state(question.key)
                    new = state is None
                    if new:
                        shared = leaders.get(question.content) or self._answered(question.content)
                        state, key = self._state(shared or self._cut_off(question.content) or "")
                    if state == "reserved" and key not in now:
                        # Nobody in this process works on it: its call was cut off.
                        if honoured:
                            now[key], leaders[question.content] = number, key
                        else:
                            self._sql.execute(f"{_LOSE} AND key = ?", (key,))
                            key = ""
                    if not new:
                        continue
                    fits = not key and spent + calls <= self.cap
                    if fits:
                        now[question.key], leaders[question.content] = number, question.key
                        spent += calls
                    state = "hit" if key else "reserved" if fits else "refused"
                    failure = "over_budget" if state == "refused" else None
                    self._sql.execute(
                        "INSERT INTO calls (key, content, item, source, state, honoured, reserved, failure, hit) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*question, source, state, honoured, calls if fits else 0, failure, key or None),
                    )
            self._spent = spent
            self._flying |= {asked[number].content for number in now.values()}
            return [(number, key) for key, number in now.items()]

    def settle(self, outcomes: Sequence[tuple[str, Outcome]]) -> None:
        """Put down what came of some calls; it is on disk when this returns, and may be used from then on.

        A call that cost more than was reserved for it is spent as it cost: what comes after it finds so much less left.
        """
        rows = []
        for key, outcome in outcomes:
            state = "failed" if outcome.verdict is None else "settled"
            failure = None if outcome.failure is None else str(outcome.failure)
            rows.append(
                (
                    state,
                    outcome.verdict,
                    outcome.confidence,
                    failure,
                    *outcome.cost,
                    _storable(outcome.detail),
                    key,
                )
            )
        with self._lock, self._typed(), self._transaction():
            self._sql.executemany(
                "UPDATE calls SET state = ?, verdict = ?, confidence = ?, failure = ?, calls = ?, tokens_in = ?, "
                "tokens_out = ?, seconds = ?, detail = ? WHERE key = ? AND state = 'reserved'",
                rows,
            )
            dearer = self._sql.executemany(
                "UPDATE calls SET reserved = calls WHERE key = ? AND calls > reserved",
                [(row[-1],) for row in rows],
            )
            if dearer.rowcount > 0:
                self._spent = self._total()

    def record(self, key: str) -> str:
        """The id of the record that a call was first made for."""
        with self._lock, self._typed():
            (name,) = self._sql.execute("SELECT item FROM calls WHERE key = ?", (key,)).fetchone()
        return str(name).encode("ascii").decode("unicode_escape")

    def landed(self, contents: Sequence[str]) -> None:
        """Say that nobody works on some contents any more, whether they were settled or not."""
        with self._lock:
            self._flying.difference_update(contents)
            self._lock.notify_all()

    def outcome(self, key: str) -> Outcome:
        """What came of a question; a hit has the answer of the call that was paid, and no cost.

        Raises:
            InputError: Nobody asked it, or it is under way.
        """
        columns = "state, verdict, confidence, failure, calls, tokens_in, tokens_out, seconds, detail, hit"
        query = f"SELECT {columns} FROM calls WHERE key = ?"
        with self._lock, self._typed():
            row = self._sql.execute(query, (key,)).fetchone()
            paid = self._sql.execute(query, (row[-1],)).fetchone() if row and row[-1] else row
        if paid is None or paid[0] == "reserved":
            expected = "a question that was asked and settled"
            raise InputError(expected, f"key {key}", where=str(self.path))
        verdict, confidence, failure = paid[1:4]
        cost, detail = Cost(*row[4:8]), row[8]
        if row[-1]:
            detail = f"asked before: {Cost(*paid[4:8])}; {paid[8]}"
        return Outcome(verdict, confidence, Failure(failure) if failure else None, cost, detail)

    def bill(self) -> Bill:
        """What was asked and what it cost so far."""
        query = (
            "SELECT state, count(*), sum(reserved), sum(calls), sum(tokens_in), sum(tokens_out), total(seconds) "
            "FROM calls GROUP BY state"
        )
        saved = (
            "SELECT coalesce(sum(paid.tokens_in), 0), coalesce(sum(paid.tokens_out), 0) "
            "FROM calls JOIN calls AS paid ON calls.hit = paid.key"
        )
        with self._lock, self._typed():
            rows = self._sql.execute(query).fetchall()
            hits = self._sql.execute(saved).fetchone()
        states = {row[0]: row[1] for row in rows}
        asked, reserved, calls, tokens_in, tokens_out, seconds = (
            sum(row[place] for row in rows) for place in range(1, 7)
        )
        return Bill(
            cap=self.cap,
            asked=asked,
            reserved=reserved,
            calls=calls,
            settled=states.get("settled", 0),
            failed=states.get("failed", 0),
            lost=states.get("lost", 0),
            in_flight=states.get("reserved", 0),
            refused=states.get("refused", 0),
            hits=states.get("hit", 0),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            seconds=float(seconds),
            hit_tokens_in=hits[0],
            hit_tokens_out=hits[1],
        )

    def rows(self) -> pa.Table:
        """One row a record that was asked about, in the order in which they were."""
        with self._lock, self._typed():
            found = self._sql.execute(f"SELECT {', '.join(_COLUMNS)} FROM calls ORDER BY rowid").fetchall()
        columns = list(zip(*found, strict=True)) or [()] * len(_COLUMNS)
        text, whole, real = pa.string(), pa.int64(), pa.float64()
        kinds = dict.fromkeys(_COLUMNS, text) | dict.fromkeys(
            ("reserved", "calls", "verdict", "tokens_in", "tokens_out"), whole
        )
        kinds |= {"confidence": real, "seconds": real}
        return pa.table({n: pa.array(c, kinds[n]) for n, c in zip(_COLUMNS, columns, strict=True)})

    def _state(self, key: str) -> tuple[str | None, str]:
        """What became of a question, or of the call that it is a hit on, and the key of that call."""
        query = "SELECT state, hit FROM calls WHERE key = ?"
        row = self._sql.execute(query, (key,)).fetchone()
        if row is not None and row[1] is not None:
            return self._sql.execute(query, (row[1],)).fetchone()[0], row[1]
        return (None if row is None else row[0]), key

    def _cut_off(self, content: str) -> str | None:
        """The call about a content that was cut off; for contents that nobody in this process works on."""
        query = "SELECT key FROM calls WHERE content = ? AND state = 'reserved'"
        row = self._sql.execute(query, (content,)).fetchone()
        return None if row is None else str(row[0])

    def _answered(self, content: str) -> str | None:
        query = "SELECT key FROM calls WHERE content = ? AND verdict IS NOT NULL"
        row = self._sql.execute(query, (content,)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn what the database says into what it means."""
        try:
            yield
        except sqlite3.Error as error:
            text = f"{self.path / FILE}: {error}"
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (
                sqlite3.SQLITE_CORRUPT,
                sqlite3.SQLITE_NOTADB,
            ):
                raise IntegrityError(text) from error
            if isinstance(error, sqlite3.ProgrammingError):
                raise ProtocolError(text) from error
            msg = f"{text}; what was acknowledged before is on disk"
            raise StorageError(msg) from error


def _plain(text: str) -> str:
    """A text that can be stored and hashed anywhere, different for different texts."""
    return text.encode("unicode_escape").decode("ascii")


def _storable(text: str) -> str:
    """A text for people, without the halves of surrogate pairs that no database takes."""
    return text[:500].encode("utf-8", "replace").decode()
