"""What a trainer, and admission before it, cost on the embedded model.

    OMP_NUM_THREADS=1 python -m benchmarks.learner

Every learner does the same update: sample a window of completions, judge them, take one optimiser step. TRL generates
through transformers, the lean loop by itself. Medians over the updates after the first few, in milliseconds; the rounds
of the learners alternate, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from vapo.actuator import Actuator
from vapo.certification.flow import certify
from vapo.tasks import open_task
from vapo.train.batch import Window, advantages
from vapo.train.engine import Settings, policy_signals
from vapo.train.hook import AcceptAll, AdmissionHook, GateHook
from vapo.train.lean import LeanEngine
from vapo.train.models import open_model, trl_parts
from vapo.train.models.base import Sampled
from vapo.train.trl import Observed, VapoGRPOTrainer
from vapo.train.trl.engine import TrlEngine

QUESTIONS, COMPLETIONS, SKIPPED = 8, 8, 3
OWN = "TRL's loss in the loop: update"
ROWS = QUESTIONS * COMPLETIONS


class Timed(TrainerCallback):
    """Times every optimiser step of a trainer, generation and all."""

    def __init__(self) -> None:
        self.begun, self.took = 0.0, []

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.begun = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.took.append(time.perf_counter() - self.begun)


class Bench:
    """One task, its questions in a fixed order, and models that begin alike."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.task = open_task("arithmetic")
        self.questions = list(self.task.split("train"))[: QUESTIONS * updates]
        model = self.model()
        self.prompts = [model.render(question.prompt) for question in self.questions]
        self.answers = [question.reference for question in self.questions]

    def model(self) -> Any:
        return open_model("embedded", task=self.task)

    def settings(self, **more: Any) -> Settings:
        return Settings(max_tokens=self.task.max_tokens, learning_rate=1e-5, **more)

    def judged(self, texts: list[str], update: int) -> np.ndarray:
        first = QUESTIONS * update
        wanted = [self.answers[first + row // COMPLETIONS] for row in range(ROWS)]
        return np.array(
            [float(self.task.answer(text) == answer) for text, answer in zip(texts, wanted, strict=True)]
        )

    def window(self, drawn: list[tuple[int, Sampled, np.ndarray, np.ndarray | None]]) -> Window:
        """The window of one update, or of several that are decided together."""
        places = [(update, row) for update, *_ in drawn for row in range(ROWS)]
        groups = [f"{update}-{row // COMPLETIONS}" for update, row in places]
        reward = np.concatenate([part[2] for part in drawn])
        y = np.where(reward > 0, 1, -1)
        batches = [part[1] for part in drawn]
        sure = [(one.logp.exp() * one.mask).sum(dim=1) / one.lengths.clamp(min=1) for one in batches]
        signals = policy_signals(
            y=y,
            group=groups,
            answers=[self.task.answer(text) for one in batches for text in one.texts],
            finished=np.concatenate([one.finished.numpy() for one in batches]),
            confidence=np.concatenate([one.numpy() for one in sure]),
        )
        return Window.of(
            ids=[f"u{update}-{row}" for update, row in places],
            groups=groups,
            window=[f"u{update}" for update, _ in places],
            y=y,
            advantage=advantages(reward, groups),
            signals=signals,
            kl=None if drawn[0][3] is None else np.concatenate([part[3] for part in drawn]),
        )

    def together(self, hook: AdmissionHook, updates: int = 25) -> float:
        """Seconds an update to admit as many updates at once, as a regime of reused rollouts is."""
        engine = LeanEngine(self.model(), self.settings())
        drawn = []
        for update in range(updates):
            prompts = [
                text for text in self.prompts[QUESTIONS * update :][:QUESTIONS] for _ in range(COMPLETIONS)
            ]
            batch = engine.sample(prompts, seed=update)
            drawn.append((update, batch, self.judged(batch.texts, update), engine.reference_kl(batch)))
        begun = time.perf_counter()
        hook.admit(self.window(drawn))
        return (time.perf_counter() - begun) / updates

    def lean(self, kind: type[LeanEngine], hook: AdmissionHook, *, priced: bool) -> dict[str, list[float]]:
        """Times of the parts of every update."""
        engine = kind(self.model(), self.settings(reference=priced))
        took: dict[str, list[float]] = {
            name: [] for name in ("sample", "judge", "kl", "admit", "update", "all")
        }
        for update in range(self.updates):
            prompts = [
                text for text in self.prompts[QUESTIONS * update :][:QUESTIONS] for _ in range(COMPLETIONS)
            ]
            marks = [time.perf_counter()]
            batch = engine.sample(prompts, seed=update)
            marks.append(time.perf_counter())
            reward = self.judged(batch.texts, update)
            marks.append(time.perf_counter())
            kl = engine.reference_kl(batch) if priced else None
            marks.append(time.perf_counter())
            admission = hook.admit(self.window([(update, batch, reward, kl)]))
            marks.append(time.perf_counter())
            engine.update(batch, admission)
            marks.append(time.perf_counter())
            for name, before, after in zip(took, marks, marks[1:], strict=False):
                took[name].append(after - before)
            took["all"].append(marks[-1] - marks[0])
        return took

    def trl(self, kind: type[GRPOTrainer], **more: Any) -> list[float]:
        """Times of every step of a trainer of TRL's."""
        module, tokenizer = trl_parts(self.model())
        timed = Timed()

        def right(
            prompts: list[str], completions: list[str], answer: list[str], **columns: Any
        ) -> list[float]:
            return [
                float(self.task.answer(text) == wanted)
                for text, wanted in zip(completions, answer, strict=True)
            ]

        with tempfile.TemporaryDirectory() as folder:
            trainer = kind(
                model=module,
                reward_funcs=right,
                args=GRPOConfig(
                    folder,
                    per_device_train_batch_size=ROWS,
                    num_generations=COMPLETIONS,
                    max_completion_length=self.task.max_tokens,
                    learning_rate=1e-5,
                    max_steps=self.updates,
                    lr_scheduler_type="constant",
                    activation_checkpointing=False,
                    dataloader_pin_memory=False,
                    save_strategy="no",
                    logging_steps=10**6,
                    report_to="none",
                    use_cpu=True,
                    bf16=False,
                    disable_tqdm=True,
                ),
                train_dataset=Dataset.from_dict({"prompt": self.prompts, "answer": self.answers}),
                processing_class=tokenizer,
                callbacks=[timed],
                **more,
            )
            trainer.train()
        return timed.took


@contextmanager
def certified(bench: Bench) -> Iterator[Callable[[], GateHook]]:
    """Opens a gate in front of a fresh copy of a certified run, with the columns that the learner has."""
    chance = np.random.default_rng(0)
    rows = 4000
    good = chance.random(rows)
    names = ("confidence", "consistency", "finished")
    columns = {f"signal.{name}": np.clip(good + 0.1 * chance.standard_normal(rows), 0, 1) for name in names}
    table = pa.table(
        {
            "id": [f"c{row}" for row in range(rows)],
            "group": [f"c{row}" for row in range(rows)],
            "y": np.ones(rows, np.int8),
            "kl": np.zeros(rows),
            "delta_r": np.full(rows, 0.1),
            **columns,
        }
    )
    labels = {f"c{row}": 1 if good[row] > 0.1 * chance.random() else -1 for row in range(rows)}
    with tempfile.TemporaryDirectory() as folder:
        count = 0
        hooks: list[GateHook] = []

        def fresh() -> GateHook:
            nonlocal count
            count += 1
            run = Path(folder) / str(count)
            found = certify(table, labels, out=run, rho=0.08, c_min=0.25, b_max=0.2, delta=0.05)
            if not found.certified:
                sys.exit("the run that the gate stands on was not certified")
            hooks.append(GateHook.open(run, Actuator("full")))
            return hooks[-1]

        try:
            yield fresh
        finally:
            for hook in hooks:
                hook.close()


def middle(times: list[float]) -> float:
    return 1e3 * statistics.median(times[SKIPPED:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learner")
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "`.*gradient_checkpointing.*` is deprecated", FutureWarning)
    bench = Bench(given.updates)
    found: dict[str, list[float]] = {}

    def note(name: str, times: list[float]) -> None:
        found.setdefault(name, []).append(middle(times))

    with certified(bench) as gate:
        for _ in range(given.rounds):
            note("TRL, GRPOTrainer", bench.trl(GRPOTrainer))
            note("TRL, VapoGRPOTrainer", bench.trl(VapoGRPOTrainer, hook=AcceptAll(), observed=Observed()))
            for label, kind, hook, priced in (
                ("lean", LeanEngine, AcceptAll(), False),
                ("TRL's loss in the loop", TrlEngine, AcceptAll(), False),
                ("lean with KL, accept all", LeanEngine, AcceptAll(), True),
                ("lean with KL, gate", LeanEngine, gate(), True),
            ):
                for part, times in bench.lean(kind, hook, priced=priced).items():
                    note(f"{label}: {part}", times)
            found.setdefault("gate, 25 updates at once: admit", []).append(1e3 * bench.together(gate()))
    for name, values in found.items():
        print(f"{name:40s} {min(values):8.2f} ms   (rounds {', '.join(f'{value:.2f}' for value in values)})")
    best = {name: min(values) for name, values in found.items()}
    print(f"TRL / lean, whole update: {best['TRL, GRPOTrainer'] / best['lean: all']:.2f}")
    gated = best["TRL, VapoGRPOTrainer"] / best["TRL, GRPOTrainer"]
    print(f"VapoGRPOTrainer / GRPOTrainer, whole update: {gated:.3f}")
    print(f"TRL's loss / lean, the step alone: {best[OWN] / best['lean: update']:.2f}")
    for label in ("lean with KL, accept all", "lean with KL, gate", "gate, 25 updates at once"):
        one = "lean with KL, gate" if label.startswith("gate") else label
        without = best[f"{one}: all"] - best[f"{one}: admit"]
        print(
            f"{label}: admission is {100 * best[f'{label}: admit'] / without:.2f} % of the update without it"
        )


if __name__ == "__main__":
    main()
