"""TRL's GRPOTrainer with admission between its advantages and its loss.

Zeroing an advantage is not abstaining: TRL's denominators would still count the completion, and its KL term would still
pull on it. Here an abstained row leaves the loss mask, and the denominators follow, so that loss and gradient are those
that TRL gives for the batch without the row, with the advantages that it had computed before.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from vapo.errors import InputError, ProtocolError
from vapo.train.attach import Decided, Observed, Row, decide, question_name, text_of
from vapo.train.collective import decide_once
from vapo.train.hook import AdmissionHook

__all__ = ["VapoGRPOTrainer"]

_BY_ROW = ("grpo", "dr_grpo", "sapo", "luspo")
"""Loss types whose denominator counts rows."""
_BY_TOKEN = ("dapo", "cispo", "vespo")
"""Loss types whose denominator counts the generation batch's tokens."""
_OVERRIDDEN = {
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_generate_and_score_completions": ["inputs"],
    "_compute_loss": ["model", "inputs"],
    "_save_checkpoint": ["model", "trial"],
    "_load_optimizer_and_scheduler": ["checkpoint"],
}
"""TRL's private methods that are overridden, and the arguments that they must have."""
_READ = (
    "_buffered_inputs",
    "_entropy_bonus_enabled",
    "_get_per_token_logps_and_entropies",
    "_logs",
    "_metrics",
    "_step",
    "aux_loss_enabled",
    "eos_token_ids",
    "loss_type",
    "reward_weights",
)
"""What else of TRL's trainer is relied on."""
_FILE = "vapo.json"


@dataclass(frozen=True, slots=True)
class _Scored:
    """What TRL scored last, on this rank."""

    inputs: list[dict[str, Any]]
    prompts: list[Any]
    completions: list[Any]
    ids: list[list[int]]
    rewards: list[float]


class VapoGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """A GRPO trainer that learns from admitted completions alone.

    Every argument of `trl.GRPOTrainer`, and two more. `reward_funcs` are the primary verifier: a completion's verdict
    is the direction of its advantage, and where it has none, whether its reward is positive; None is no verdict.

    Args:
        hook: Decides on each generation batch as one window. Only rank 0's is asked; other ranks may pass None.
        observed: What the hook sees of a completion.
        args: As in TRL. Loss types `grpo`, `dr_grpo`, `dapo`, `cispo`, `sapo`, `luspo` and `vespo`.
        kwargs: As in TRL.

    Raises:
        InputError: A setting under which abstaining could not be made to equal dropping the row.
        ProtocolError: This version of TRL does not have the methods that are overridden.
    """

    baseline = "observed"
    """Advantages are computed from all observed verdicts, before the hook."""

    def __init__(
        self, *args: Any, hook: AdmissionHook | None, observed: Observed | None = None, **kwargs: Any
    ) -> None:
        _demand_contract()
        self.hook = hook
        self.observed = observed or Observed()
        self._scored: _Scored | None = None
        self._holds = False
        super().__init__(*args, **kwargs)
        if hook is None and self.accelerator.is_main_process:
            expected = "an admission hook on the rank that decides"
            raise InputError(expected, "None", where="argument 'hook'")
        _demand_settings(self)
        self.add_callback(_Hold(self))

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: Any,
    ) -> torch.Tensor:
        """Remember what was scored, which TRL does not hand on."""
        found: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        rewards = (found * self.reward_weights.to(found.device)).nansum(dim=1)
        rewards = rewards.masked_fill(torch.isnan(found).all(dim=1), torch.nan)
        first = self.accelerator.process_index * len(prompts)
        mine = rewards[first : first + len(prompts)].tolist()
        self._scored = _Scored(inputs, prompts, completions, completion_ids_list, mine)
        return found

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Let TRL compute advantages from all observed verdicts, then let the hook decide what they may move."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        scored, self._scored = self._scored, None
        if scored is None:
            return output
        if not self.model.training:
            # The completions table has a row for each of these, too; no column may be shorter than another.
            unasked = [None] * (len(scored.inputs) * self.accelerator.num_processes)
            self._log_columns(unasked, unasked, unasked)
            return output
        place = str(self.state.global_step)
        decided, mine = decide_once(self._rows(scored, output), lambda rows: self._decide(rows, place))
        kept = torch.tensor(decided.kept[mine], device=output["advantages"].device)
        admitted = torch.tensor(decided.admitted[mine], device=kept.device)
        output["advantages"] = torch.tensor(decided.coefficient[mine]).to(output["advantages"])
        # 0: dropped, 1: stays without a proposal, 2: admitted. Split and shuffled by TRL along with the rows.
        output["standing"] = kept.to(torch.int8) + admitted.to(torch.int8)
        if not all(decided.kept):
            # The tool mask is TRL's word for what is in the loss; the attention mask stays as it is.
            real = output["completion_mask"]
            mask = output.get("tool_mask", torch.ones_like(real)) * kept[:, None].to(real.dtype)
            output["tool_mask"] = mask
            output["num_items_in_batch"] = self.accelerator.gather((real * mask).sum()).sum()
        self._log_columns(decided.coefficient, decided.reason, decided.score)
        for name, value in {**decided.metrics, "baseline_observed": 1.0}.items():
            self._metrics["train"][f"vapo/{name}"].append(value)
        return output

    def _rows(self, scored: _Scored, output: dict[str, Any]) -> list[Row]:
        observed, ends = self.observed, {*self.eos_token_ids}
        confidence, kl = self._measured(output)
        rows = []
        for number, example in enumerate(scored.inputs):
            question, ids = text_of(scored.prompts[number]), scored.ids[number]
            row = Row(
                question=question,
                completion=text_of(scored.completions[number]),
                reference=str(example.get(observed.reference, "")),
                group=str(example[observed.group]) if observed.group else question_name(question),
                reward=scored.rewards[number],
                advantage=float(output["advantages"][number]),
                finished=bool(ids) and ids[-1] in ends,
                confidence=confidence[number],
                kl=kl[number],
            )
            rows.append(row)
        return rows

    def _decide(self, rows: Sequence[Row], place: str) -> Decided:
        if self.hook is None:
            expected = "an admission hook on the rank that decides"
            raise InputError(expected, "None", where="argument 'hook'")
        return decide(rows, self.hook, self.observed, place)

    def _measured(self, output: dict[str, Any]) -> tuple[list[float], list[float]]:
        """Mean token probability of each completion, and its KL to the reference where there is one."""
        mask = output["completion_mask"]
        if "tool_mask" in output:
            mask = mask * output["tool_mask"]
        count = mask.sum(dim=1).clamp(min=1)
        now, priced = output.get("old_per_token_logps"), "ref_per_token_logps" in output
        unknown = [float("nan")] * len(count)
        if now is None:
            if not self.observed.confidence and not priced:
                return unknown, unknown
            now = self._probabilities(output)
        confidence = (now.exp() * mask).sum(dim=1) / count
        if not priced:
            return confidence.tolist(), unknown
        apart = output["ref_per_token_logps"] - now
        kl = ((apart.exp() - apart - 1.0) * mask).sum(dim=1) / count
        return confidence.tolist(), kl.tolist()

    def _probabilities(self, output: dict[str, Any]) -> torch.Tensor:
        """Log probabilities that TRL saves itself where the ratio is known to be 1."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        attention = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        names = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        more = {name: output[name] for name in names if name in output}
        with torch.no_grad():
            found: torch.Tensor = self._get_per_token_logps_and_entropies(
                self.model,
                ids,
                attention,
                output["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
                **more,
            )[0]
        return found

    def _log_columns(
        self, coefficient: Sequence[Any], admission: Sequence[Any], trust: Sequence[Any]
    ) -> None:
        """Beside the advantages, which TRL has logged before they were edited."""
        columns = {"coefficient": coefficient, "admission": admission, "trust": trust}
        for name, column in columns.items():
            self._logs["extra"][name].extend(column)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss of the rows that stay."""
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        if not self.model.training or "standing" not in inputs:
            return loss
        rows, kept, admitted = self._standing()
        # Once rows were dropped, momentum and weight decay must not move what no verdict speaks for.
        self._holds = kept < rows and admitted == 0
        if self.loss_type in _BY_ROW and 0 < kept < rows:
            loss = loss * (rows / kept)
        return loss

    def _standing(self) -> tuple[int, int, int]:
        """Rows, rows that stay and rows admitted in the present optimiser step, over all ranks and micro-batches."""
        steps = self.args.gradient_accumulation_steps
        first = self._step % self.args.steps_per_generation // steps * steps
        standing = torch.cat([part["standing"] for part in self._buffered_inputs[first : first + steps]])
        counts = torch.stack([torch.ones_like(standing).sum(), (standing > 0).sum(), (standing > 1).sum()])
        rows, kept, admitted = self.accelerator.reduce(counts, reduction="sum").tolist()
        return int(rows), int(kept), int(admitted)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Put the hook's state beside the weights."""
        super()._save_checkpoint(model, trial)
        if self.hook is not None and self.args.should_save:
            folder = (
                Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            )
            state = {"baseline": self.baseline, "hook": self.hook.state_dict()}
            (folder / _FILE).write_text(json.dumps(state, indent=1), encoding="utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Let the hook go on where the checkpoint was taken."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or self.hook is None or not self.accelerator.is_main_process:
            return
        path = Path(checkpoint) / _FILE
        if not path.is_file():
            msg = f"{path}: the checkpoint holds no state of an admission hook"
            raise ProtocolError(msg)
        self.hook.load_state_dict(json.loads(path.read_text(encoding="utf-8"))["hook"])


class _Hold(TrainerCallback):  # type: ignore[misc]
    """Keeps the optimiser still in a step that nothing was admitted for: without gradients it passes weights by."""

    def __init__(self, trainer: VapoGRPOTrainer) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the gradients away."""
        if self._trainer._holds:
            self._trainer.optimizer.zero_grad()


def _demand_contract() -> None:
    for name, expected in _OVERRIDDEN.items():
        method = getattr(GRPOTrainer, name, None)
        found = list(inspect.signature(method).parameters)[1:] if method else None
        if found != expected:
            msg = f"TRL {trl.__version__}: expected GRPOTrainer.{name}({', '.join(expected)}), got {found}"
            raise ProtocolError(msg)


def _demand_settings(trainer: VapoGRPOTrainer) -> None:
    if missing := [name for name in _READ if not hasattr(trainer, name)]:
        msg = f"TRL {trl.__version__}: expected GRPOTrainer.{missing[0]}, got nothing of that name"
        raise ProtocolError(msg)
    args = trainer.args
    if trainer.loss_type not in _BY_ROW + _BY_TOKEN:
        expected = f"one of {', '.join(_BY_ROW + _BY_TOKEN)}: its denominator is that of a whole step"
        raise InputError(expected, repr(trainer.loss_type), where="loss_type")
    if args.steps_per_generation % args.gradient_accumulation_steps:
        steps = args.gradient_accumulation_steps
        expected = f"a multiple of gradient_accumulation_steps ({steps}): a step lies within one window"
        raise InputError(expected, str(args.steps_per_generation), where="steps_per_generation")
    if trainer._entropy_bonus_enabled:
        expected = "no entropy bonus: its mean is over micro-batches, from which rows may be gone"
        raise InputError(expected, f"{trainer.entropy_coef:g}", where="entropy_coef")
    if trainer.aux_loss_enabled:
        expected = "router_aux_loss_coef=0: the router's loss counts every token, dropped rows' too"
        raise InputError(expected, f"{trainer.router_aux_loss_coef:g}", where="router_aux_loss_coef")
    if trainer.is_deepspeed_enabled:
        expected = "DDP or FSDP: DeepSpeed steps inside its backward pass, where it cannot be held"
        raise InputError(expected, "DeepSpeed", where="accelerate")
