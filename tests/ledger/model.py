"""What a run should be after any sequence of steps, in a hundred lines that share nothing with the code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

RHO, C_MIN, B_MAX, DELTA, STAGES, BUDGET = 0.4, 0.2, 0.38, 0.3, 3, 3
CANDIDATES = ((0.25, 0.75), (0.125, 0.5))
"""Where appeals begin and where acceptance begins, the more selective one first; one chain."""


@dataclass
class Row:
    """A record, and what is true of it."""

    name: str
    score: float
    y: int
    truth: int
    window: str


@dataclass
class Model:
    """The state of a run: what its log must say, and what is known from it."""

    keyed: bool
    kinds: list[str] = field(default_factory=list)
    stage: int = 0
    rows: list[Row] = field(default_factory=list)
    phase: str = "new"
    pending: tuple[str, frozenset[str]] | None = None
    """Whose calls were in flight when the process died: the stage's or a batch's, and which."""
    lost: set[str] = field(default_factory=set)
    joined: int = 0
    """Stages whose labels were joined: each has spent its share."""
    selected: int | None = None
    deployed: bool = False
    alarmed: bool = False
    spent: dict[str, int] = field(default_factory=dict)
    signs: dict[str, int] = field(default_factory=dict)
    """What the open deployment decided."""

    def open(self, rows: list[Row]) -> bool:
        """Declare the first stage."""
        if self.stage:
            return self.stage == 1
        self._begin(rows, ["protocol.declared"])
        return True

    def renew(self, rows: list[Row]) -> bool:
        """Begin another stage."""
        if self.phase != "issued" or self.pending or self.stage == STAGES:
            return False
        self._begin(rows, ["deploy.closed", "stage.opened"] if self.deployed else ["stage.opened"])
        return True

    def _begin(self, rows: list[Row], kinds: list[str]) -> None:
        self.kinds += [*kinds, "family.frozen"]
        self.stage, self.rows, self.phase = self.stage + 1, rows, "declared"
        self.deployed = self.alarmed = False

    def _ask(self, whose: str, asked: list[str], dies: bool) -> bool:
        """Reserve and settle calls; whether the process died between the two."""
        if not asked:
            return False
        if self.pending is None:
            self.kinds.append("appeals.requested")
        elif not self.keyed:
            # They may have been paid for, so nobody asks again.
            self.lost |= self.pending[1]
            dies = False
        self.pending = (whose, frozenset(asked)) if dies else None
        if not dies:
            self.kinds.append("appeals.settled")
        return dies

    def freeze(self, dies: bool) -> tuple[bool, bool]:
        """Let every candidate decide: whether that may be done now, and whether it died."""
        if self.phase != "declared":
            return self.phase in ("frozen", "joined", "issued"), False
        asked = {
            name for one in CANDIDATES for name, action in walk(one, self.rows, {}) if action == "appeal"
        }
        if self._ask("stage", [row.name for row in self.rows if row.name in asked], dies):
            return True, True
        self.kinds += ["actions.recorded", "trace.frozen"]
        self.phase = "frozen"
        return True, False

    def admitted(
        self, one: tuple[float, float], rows: list[Row], spent: dict[str, int]
    ) -> list[tuple[Row, int]]:
        """Every record with its final sign."""
        told = {row.name: row for row in rows}
        found = []
        for name, action in walk(one, rows, spent):
            row = told[name]
            confirmed = action == "appeal" and name not in self.lost and row.truth == row.y
            found.append((row, row.y if action == "accept" or confirmed else 0))
        return found

    def needed(self) -> set[str]:
        """The records whose labels are needed."""
        return {row.name for one in CANDIDATES for row, sign in self.admitted(one, self.rows, {}) if sign}

    def join(self, complete: bool) -> bool:
        """Let labels in."""
        if self.phase not in ("frozen", "joined", "issued") or not complete:
            return False
        if self.phase == "frozen":
            self.kinds.append("labels.joined")
            self.phase, self.joined = "joined", self.joined + 1
        return True

    def issue(self) -> bool:
        """Test the chain: what passes first and admits the most is selected."""
        if self.phase not in ("joined", "issued"):
            return False
        if self.phase == "joined":
            self.selected, passed = None, []
            for number in range(len(CANDIDATES)):
                counts = self.counts(number)
                if not _tested(counts, DELTA / STAGES):
                    continue
                if not _passes(counts, DELTA / STAGES):
                    break
                passed.append((-counts[1], counts[3], number))
            self.selected = min(passed)[2] if passed else None
            self.kinds.append("certificate.refused" if self.selected is None else "certificate.issued")
            self.phase = "issued"
        return True

    def counts(self, number: int) -> tuple[int, int, int, int]:
        """Records, admitted, harmful and appealed ones of a candidate."""
        found = self.admitted(CANDIDATES[number], self.rows, {})
        appealed = [action for _, action in walk(CANDIDATES[number], self.rows, {}) if action == "appeal"]
        harmful = [row for row, sign in found if sign and sign != row.truth]
        return len(self.rows), sum(sign != 0 for _, sign in found), len(harmful), len(appealed)

    def decide(self, rows: list[Row], dies: bool) -> tuple[bool, bool, dict[str, int]]:
        """Deploy on a batch: whether that may be done now, whether it died, and the final signs."""
        if self.selected is None and "certificate.refused" not in self.kinds:
            return False, False, {}
        nothing = {row.name: 0 for row in rows}
        if self.phase != "issued" or self.alarmed:
            return True, False, nothing
        if self.pending and self.pending[0] != rows[0].name:
            return False, False, {}
        if not self.deployed:
            self.kinds.append("deploy.opened")
            self.deployed, self.spent, self.signs = True, {}, {}
        if self.selected is not None:
            one = CANDIDATES[self.selected]
            asked = [name for name, action in walk(one, rows, self.spent) if action == "appeal"]
            if self._ask(rows[0].name, asked, dies):
                return True, True, {}
            nothing = {row.name: sign for row, sign in self.admitted(one, rows, self.spent)}
            self.spent[rows[0].window] = self.spent.get(rows[0].window, 0) + len(asked)
        self.kinds.append("actions.recorded")
        self.signs |= nothing
        return True, False, nothing

    def check(self) -> bool:
        """Join labels of deployed records."""
        if not self.deployed or self.pending:
            return False
        self.kinds.append("spotcheck.joined")
        return True

    def alarm(self) -> None:
        """The monitor has closed the gate."""
        self.kinds.append("alarm")
        self.deployed, self.alarmed = False, True


def walk(one: tuple[float, float], rows: list[Row], spent: dict[str, int]) -> list[tuple[str, str]]:
    """What a policy does with each record while its budget lasts."""
    left = dict(spent)
    found = []
    for row in rows:
        action = "accept" if row.score >= one[1] else "abstain"
        if one[0] <= row.score < one[1] and left.get(row.window, 0) < BUDGET:
            action, left[row.window] = "appeal", left.get(row.window, 0) + 1
        found.append((row.name, action))
    return found


def _tested(counts: tuple[int, int, int, int], alpha: float) -> bool:
    n, k, _, a = counts
    return k >= C_MIN * n and a <= B_MAX * n and k >= math.log(alpha) / math.log(1 - RHO)


def _passes(counts: tuple[int, int, int, int], alpha: float) -> bool:
    _, k, h, _ = counts
    tail = sum(math.comb(k, i) * RHO**i * (1 - RHO) ** (k - i) for i in range(h + 1))
    return tail <= alpha and (h == 0 or h <= k * RHO - 1)
