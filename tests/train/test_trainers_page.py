"""The adapters of docs/trainers.md, run as they stand on stand-ins that have the trainers' public fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from vapo.actuator import Actuator
from vapo.policy import Reason
from vapo.train.hook import actuated

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"
DROPPED = [1, 2]
ADVANTAGE = torch.tensor([0.7, -0.7, 1.2, 0.0])
LENGTHS = [3, 2, 4, 1]


@pytest.fixture(scope="module")
def page():
    """The names that the page's blocks define, each block run behind the one before."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


class Hook:
    """Abstains from two rows; keeps what it was shown."""

    def __init__(self, dropped=DROPPED):
        self.dropped, self.seen = dropped, []

    def admit(self, window, items=()):
        self.seen.append((window, list(items)))
        reason = np.full(len(window), Reason.ACCEPTED, np.uint8)
        reason[window.records.delta_r == 0] = Reason.NO_PROPOSAL
        reason[[row for row in self.dropped if row < len(window)]] = Reason.BELOW_THRESHOLD
        return actuated(Actuator("identity"), window, reason, np.ones(len(window)))

    def metrics(self):
        return {"windows": float(len(self.seen))}

    def state_dict(self):
        return {"windows": len(self.seen)}

    def load_state_dict(self, state):
        self.state = state


class Letters:
    """A tokenizer whose tokens are letters."""

    def batch_decode(self, rows, skip_special_tokens=True):
        return ["".join(chr(96 + int(token)) for token in row if int(token)) for row in rows]


def columns():
    mask = torch.zeros((4, 4))
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
    responses = (torch.arange(4)[None] + torch.arange(1, 5)[:, None]) * mask.long()
    return mask, responses, torch.full((4, 4), -0.5), torch.full((4, 4), -0.75)


def shown(hook):
    window, items = hook.seen[0]
    assert window.advantage == pytest.approx(ADVANTAGE.numpy(), abs=1e-6)
    assert window.records.kl == pytest.approx(np.exp(-0.25) + 0.25 - 1.0, abs=1e-6)
    confidence = np.where(window.records.y > 0, np.exp(-0.5), 1 - np.exp(-0.5))
    assert window.records.signals["confidence"] == pytest.approx(confidence, abs=1e-6)
    return window, items


def test_under_verl_dropped_rows_leave_the_response_mask(page):
    mask, responses, now, reference = columns()

    def compute_advantage(data, adv_estimator):
        assert adv_estimator == "grpo"
        data.batch["advantages"] = ADVANTAGE[:, None] * data.batch["response_mask"]
        return data

    batch = {
        "response_mask": mask,
        "responses": responses,
        "prompts": torch.tensor([[1, 2], [1, 2], [0, 3], [0, 3]]),
    }
    batch |= {"old_log_probs": now, "ref_log_prob": reference}
    extra = {"uid": np.array(["p", "p", "q", "q"]), "reward_model": np.array([{"ground_truth": "46"}] * 4)}
    hook = Hook()
    data = SimpleNamespace(batch=batch, non_tensor_batch=extra)
    data = page["with_admission"](compute_advantage, hook, Letters())(data, "grpo")
    window, items = shown(hook)
    assert [item.question for item in items] == ["ab", "ab", "c", "c"]
    assert [item.reference for item in items] == ["46"] * 4
    assert items[0].completion == "abc"
    assert window.records.signals["finished"][2] == 0.0
    assert data.batch["response_mask"].sum(dim=1).tolist() == [3, 0, 0, 1]
    assert torch.allclose(data.batch["advantages"][0], 0.7 * mask[0])
    assert not data.batch["advantages"][DROPPED].any()


def test_under_nemo_dropped_rows_leave_the_sample_mask(page):
    mask, responses, now, reference = columns()
    asked = torch.tensor([[5, 6]] * 2 + [[7, 8]] * 2)
    wide = lambda x: torch.cat([torch.zeros(4, 2), x], dim=1)  # noqa: E731
    data = {
        "input_ids": torch.cat([asked, responses], dim=1),
        "input_lengths": torch.tensor(LENGTHS) + 2,
        "token_mask": wide(mask),
        "sample_mask": torch.ones(4),
        "prev_logprobs": wide(now),
        "reference_policy_logprobs": wide(reference),
        "advantages": wide(ADVANTAGE[:, None].expand(4, 4)),
    }

    class Policy:
        name = "policy"

        def train(self, data, loss_fn):
            return data, loss_fn

    hook = Hook()
    policy = page["Admitted"](Policy(), hook, Letters())
    assert policy.name == "policy"
    trained, loss = policy.train(data, "loss")
    assert loss == "loss"
    _, items = shown(hook)
    assert [item.question for item in items] == ["ef", "ef", "gh", "gh"]
    assert items[0].completion == "abc"
    assert trained["sample_mask"].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert torch.allclose(trained["advantages"][0], 0.7 * trained["token_mask"][0])


@dataclass
class Experience:
    """Fields of OpenRLHF's experience that the adapter reads."""

    sequences: torch.Tensor
    action_mask: torch.Tensor
    action_log_probs: torch.Tensor
    base_action_log_probs: torch.Tensor | None
    advantages: torch.Tensor
    truncated: torch.Tensor
    prompts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def test_under_openrlhf_dropped_rows_are_gone_from_the_experiences(page):
    mask, responses, now, reference = columns()
    whole = Experience(
        torch.cat([torch.full((4, 2), 5), responses], dim=1),
        mask.bool(),
        now,
        reference,
        ADVANTAGE[:, None] * mask,
        torch.tensor([0, 0, 1, 0]),
        ["ab", "ab", "c", "c"],
        ["46"] * 4,
    )

    def split(batch):
        return [
            Experience(
                *(getattr(batch, name)[row] for name in list(Experience.__dataclass_fields__)[:6]),
                [batch.prompts[row]],
                [batch.labels[row]],
            )
            for row in range(4)
        ]

    hook = Hook()
    maker = SimpleNamespace(compute_advantages_and_returns=lambda experiences: experiences)
    maker = page["admitting"](maker, hook, split, list, Letters())
    (stays,) = maker.compute_advantages_and_returns([whole])
    window, items = shown(hook)
    assert items[3].completion == "d"
    assert window.records.signals["finished"][2] == 0.0
    assert [single.prompts for single in stays] == [["ab"], ["c"]]
    assert torch.allclose(stays[0].advantages, torch.tensor(0.7))
    hook.dropped = [0, 1, 2, 3]
    assert maker.compute_advantages_and_returns([whole]) == []


def test_under_prime_rl_a_group_enters_only_whole(page):
    row = page["Row"]
    group = [row("1+2=", "3", "3", "q", 1.0, 0.7, True), row("1+2=", "4", "3", "q", 0.0, -0.7, True)]
    hook = Hook(dropped=[])
    gate = page["AdmissionGate"](hook, lambda given: given)
    assert gate.admit(group)
    hook.dropped = [1]
    assert not gate.admit(group)
    hook.dropped = []
    assert not gate.admit([row("1+2=", "3", "3", "q", 1.0, 0.0, True)])
    assert gate.metrics() == {"windows": 3.0}
    state = gate.state_dict()
    assert state == {"groups": 3, "hook": {"windows": 3}}
    again = page["AdmissionGate"](hook, lambda given: given)
    again.load_state_dict(state)
    assert again.state_dict()["groups"] == 3


@pytest.mark.slow
def test_the_example_certifies_trains_and_leaves_a_ledger_in_order(tmp_path, monkeypatch, capsys):
    pytest.importorskip("trl")
    import runpy

    monkeypatch.setenv("VAPO_CACHE", str(tmp_path))
    runpy.run_path(str(PAGE.parents[1] / "examples" / "trl" / "train_through_a_gate.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert said.startswith("CERTIFIED")
    assert "closed: [False, False, False, False, False, False]" in said
    assert "the ledger is in order: True" in said
