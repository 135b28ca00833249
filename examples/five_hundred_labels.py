"""A data frame of rollouts and 500 labels: what may enter the learner?

Run with `python examples/five_hundred_labels.py`. Replace the first block by reading your own files.
"""

from __future__ import annotations

import tempfile

import vapo
from vapo.simulate import simulate

# One completion a question, and labels for 500 of them, both drawn without looking at any label.
world = simulate(1000, 4, seed=11)
rollouts = world.records.to_pandas().groupby("group").sample(1, random_state=0)
labels = world.labels.to_pandas()
labels = labels[labels.id.isin(rollouts.id.sample(500, random_state=0))]

with tempfile.TemporaryDirectory() as run:
    certificate = vapo.certify(rollouts, labels, out=run, rho=0.08, c_min=0.5, b_max=0.2)
    print(certificate)
    with vapo.Gate.open(run) as gate:
        fresh = simulate(200, 4, seed=12, prefix="next-").records.to_pandas()
        decisions = gate.decide(fresh).table.to_pandas()
print(decisions.reason.value_counts().to_string())
print(f"{(decisions.sign != 0).mean():.0%} of the new updates may enter the learner")
