"""Where 500 labels go farthest: all four completions of 125 questions, or one completion of each of 500.

    python -m benchmarks.where_labels_go

Counts certificates in 40 made-up worlds (`vapo.simulate`) of 1,000 questions each, whose verifiers err in clusters by
question. The questions without a label build the candidates.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import vapo
from vapo.simulate import simulate

WORLDS, QUESTIONS, LABELS, SIZE = 40, 1000, 500, 4


def certified(records: Any, labels: Any, **terms: float) -> bool:
    """Whether these labels certify a gate."""
    with tempfile.TemporaryDirectory() as run:
        return vapo.certify(records, labels, out=run, b_max=0.2, **terms).certified


def main() -> None:
    """Print one line for each tolerance and least coverage."""
    for rho in (0.05, 0.08):
        for c_min in (0.25, 0.5):
            whole = single = 0
            for seed in range(WORLDS):
                world = simulate(QUESTIONS, SIZE, seed=seed)
                records, labels = world.records.to_pandas(), world.labels.to_pandas()
                first = records.group.unique()[: LABELS // SIZE]
                told = labels[labels.id.isin(records.id[records.group.isin(first)])]
                whole += certified(records, told, rho=rho, c_min=c_min)
                records = records.groupby("group").sample(1, random_state=seed)
                told = labels[labels.id.isin(records.id.sample(LABELS, random_state=seed))]
                single += certified(records, told, rho=rho, c_min=c_min)
            sys.stdout.write(
                f"rho {rho}, c_min {c_min}: certified in {whole} of {WORLDS} worlds by all completions of "
                f"{LABELS // SIZE} questions, in {single} by one completion of each of {LABELS}\n"
            )


if __name__ == "__main__":
    main()
