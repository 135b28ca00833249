"""TRL's GRPO behind a certified gate, from nothing: the embedded model learns two-digit sums from a verifier that errs.

Run with `python examples/trl/train_through_a_gate.py`. With a model, a data set and a verifier of your own only the
first block changes.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig

import vapo
from vapo.actuator import Actuator
from vapo.ledger import verify_run
from vapo.tasks import open_task
from vapo.train.attach import Observed
from vapo.train.batch import Window, advantages
from vapo.train.engine import Settings, policy_signals
from vapo.train.hook import GateHook
from vapo.train.lean import LeanEngine
from vapo.train.models import open_model, trl_parts
from vapo.train.trl import VapoGRPOTrainer, reward
from vapo.verifiers import Item
from vapo.verifiers.channels import Channel, NoisyVerifier

warnings.filterwarnings("ignore", ".*gradient_checkpointing.* is deprecated", FutureWarning)
COMPLETIONS, STEPS = 8, 6
task = open_task("arithmetic")
model = open_model("embedded", task=task)
# The verifier that the learner has, wrong about 15 % of the answers; and the trusted one, for labels alone.
primary = NoisyVerifier(task.oracle, Channel.make("symmetric", 0.15, key="example"))

# 1. A calibration buffer from the model as it is: what the gate will see, and labels.
engine = LeanEngine(model, Settings(max_tokens=task.max_tokens))
asked = [q for q in task.split("calibration")[:300] for _ in range(COMPLETIONS)]
batch = engine.sample([model.render(question.prompt) for question in asked], seed=1)
items = [
    Item(f"c{row}", question.text, text, question.reference)
    for row, (question, text) in enumerate(zip(asked, batch.texts, strict=True))
]
y = [outcome.sign for outcome in primary.verify(items)]
groups = [question.text for question in asked]
probability = (batch.logp.exp() * batch.mask).sum(dim=1) / batch.lengths
window = Window.of(
    ids=[item.id for item in items],
    groups=groups,
    window="calibration",
    y=y,
    advantage=advantages([float(sign > 0) for sign in y], groups),
    signals=policy_signals(
        y=y,
        group=groups,
        answers=[task.answer(text) for text in batch.texts],
        finished=batch.finished,
        confidence=probability,
    ),
    content=groups,
)
labels = {item.id: outcome.sign for item, outcome in zip(items, task.oracle.verify(items), strict=True)}

with tempfile.TemporaryDirectory() as folder:
    run = Path(folder) / "run"
    # 2. Frozen before a label is read, then certified or refused.
    terms = {"rho": 0.08, "c_min": 0.25, "b_max": 0.2, "score": "signal:consistency", "renew_after": STEPS}
    certificate = vapo.certify(window.records, labels, out=run, **terms)
    print(certificate)

    # 3. The trainer as ever, with a hook. A refused certificate trains nothing. The certificate is about completions of
    # the model as it was; these few steps move it a little, and behind them the gate closes (docs/trainers.md).
    questions = task.split("train")[: 8 * STEPS]
    module, tokenizer = trl_parts(model)
    with GateHook.open(run, Actuator("identity")) as hook:
        trainer = VapoGRPOTrainer(
            model=module,
            reward_funcs=reward(primary),
            hook=hook,
            observed=Observed(answer=task.answer),
            args=GRPOConfig(
                str(Path(folder) / "trainer"),
                per_device_train_batch_size=8 * COMPLETIONS,
                num_generations=COMPLETIONS,
                max_completion_length=task.max_tokens,
                learning_rate=5e-5,
                max_steps=STEPS,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                bf16=False,
                activation_checkpointing=False,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(
                [{"prompt": model.render(q.prompt), "answer": q.reference} for q in questions]
            ),
            processing_class=tokenizer,
        )
        trainer.train()
    rows = [row for row in trainer.state.log_history if "vapo/coverage" in row]
    print("closed:", [bool(row["vapo/closed"]) for row in rows])
    print("coverage:", [round(row["vapo/coverage"], 2) for row in rows])
    print("the ledger is in order:", verify_run(run).ok)
