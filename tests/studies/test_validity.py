"""The validity study end to end, small: its cells follow from its rows, and the paper's rule is refused at 512."""

from __future__ import annotations

import pytest

from vapo.studies import validity
from vapo.studies.framework import Context, matching
from vapo.studies.validity import STUDY
from vapo.studies.validity_paper import LARGE, LONG, SHORT
from vapo.studies.validity_sums import SHARED, Sums

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows():
    return [row for task in STUDY.tasks("smoke", (1,)) for row in task.run()]


@pytest.fixture(scope="module")
def cells(rows):
    tables = STUDY.tables(rows, Context("smoke", (1,)))
    return {(table.name, cell.row, cell.quantity): cell for table in tables for cell in table.cells}


def test_every_cell_has_rows_behind_it_and_every_comparison_a_reason(rows, cells):
    for name, cell in cells.items():
        assert any(True for _ in matching(rows, cell.rows)), name
        assert cell.paper is None or cell.why, name


def test_the_papers_rule_is_never_feasible_on_its_512_records(rows):
    found = list(matching(rows, {"kind": "block", "claim": "hoeffding", "records": SHORT}))
    assert len(found) > 20
    assert sum(row["certified"] for row in found) == 0


def test_the_papers_rule_needs_what_the_contract_says(cells):
    row = "0.08, the paper's certificate, 20 candidates"
    assert cells["records-needed", row, "records for even odds"].ours.value == 196_381
    assert cells["records-needed", row, "records for 90 %"].ours.value == 242_559
    assert cells["records-needed", row, "feasible at 512"].ours.value == "never"


def test_stages_decided_at_once_and_one_by_one_are_decided_alike(cells):
    for claim in ("hoeffding", "sequential", "frozen"):
        cell = cells["defects", claim, "decided alike one by one"]
        assert cell.ours.value == 1.0
        assert cell.ours.n >= 50


def test_no_claim_fails_more_often_than_it_may(cells):
    for claim in ("hoeffding", "sequential", "frozen"):
        assert cells["defects", claim, "with a lower limit above δ"].ours.value == 0


def test_at_the_papers_operating_point_other_claims_certify_where_the_papers_does_not(rows):
    def certified(claim, records):
        where = {
            "kind": "block",
            "law": "operating point",
            **SHARED,
            "rho": 0.08,
            "claim": claim,
            "records": records,
        }
        return Sums(rows, where).share("certified").value

    assert certified("hoeffding", LONG) == 0
    assert certified("frozen", LONG) > 0.5
    assert certified("hoeffding", LARGE) > 0.5


def test_the_same_task_gives_the_same_rows_and_another_seed_others():
    law = {"law": "boundary", "noise": "correlated", "order": "canonical", "budget": 16}
    size = {"rhos": (0.08,), "records": 1024, "stages": 30}
    first, again, other = (list(validity._block(**law, **size, seed=seed)) for seed in (3, 3, 4))
    assert first == again
    assert [{**row, "seed": 0} for row in first] != [{**row, "seed": 0} for row in other]
