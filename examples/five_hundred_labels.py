"""A data frame of rollouts and 500 labels: what may enter the learner?

Run with `python examples/five_hundred_labels.py`. Replace the first block by reading your own files.
"""

from __future__ import annotations

import tempfile

import vapo
from vapo.simulate import simulate

# 125 questions of 500 are labelled, four completions each. Whole questions, chosen without looking at any label.
world = simulate(500, 4, seed=11)
rollouts = world.records.to_pandas()
labels = world.labels.to_pandas()
labels = labels[labels.id.isin(rollouts.id[rollouts.group.isin(rollouts.group.unique()[:125])])]

with tempfile.TemporaryDirectory() as run:
    certificate = vapo.certify(rollouts, labels, out=run, rho=0.10, c_min=0.25, b_max=0.2)
    print(certificate)
    with vapo.Gate.open(run) as gate:
        fresh = simulate(200, 4, seed=12, prefix="next-").records.to_pandas()
        decisions = gate.decide(fresh).table.to_pandas()
print(decisions.reason.value_counts().to_string())
print(f"{(decisions.sign != 0).mean():.0%} of the new updates may enter the learner")
