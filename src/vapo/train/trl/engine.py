"""The engine interface with TRL's loss inside: for comparing learners in one loop.

Sampling, optimiser and resume are the lean loop's; every loss is `GRPOTrainer._compute_loss` on the rows that stay. For
TRL's own road to scale (vLLM, accelerate, FSDP, PEFT) there is `VapoGRPOTrainer`.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from vapo.train.engine import Settings
from vapo.train.lean import LeanEngine, Sums
from vapo.train.models import trl_parts
from vapo.train.models.base import LanguageModel, Sampled

__all__ = ["TrlEngine"]

_NEW = "activation_checkpointing"
_CHECKPOINTING = _NEW if _NEW in GRPOConfig.__dataclass_fields__ else "gradient_checkpointing"


class TrlEngine(LeanEngine):
    """An engine whose loss is TRL's.

    Args:
        model: The embedded model, or one that transformers loaded; trained in place.
        settings: How.

    Example:
        >>> from vapo.train.models.embedded import CharacterModel, Shape
        >>> engine = TrlEngine(CharacterModel(Shape(width=16, layers=1, heads=2)), Settings(max_tokens=4))
        >>> engine.sample(["1+2="], seed=1).tokens.shape[0]
        1
    """

    def __init__(self, model: LanguageModel, settings: Settings | None = None) -> None:
        super().__init__(model, settings)
        module, tokenizer = trl_parts(model)
        # A TRL that computes losses and nothing else: what it would train on, and where to, it is never asked for.
        with tempfile.TemporaryDirectory(prefix="vapo-trl-") as folder, torch.random.fork_rng(devices=[]):
            options: dict[str, Any] = {_CHECKPOINTING: False}
            config = GRPOConfig(
                folder,
                per_device_train_batch_size=2,
                num_generations=2,
                loss_type=self.settings.loss,
                importance_sampling_level=self.settings.level,
                max_completion_length=self.settings.max_tokens,
                temperature=self.settings.temperature,
                epsilon=self.settings.clip_low,
                epsilon_high=self.settings.clip_high,
                use_cpu=next(module.parameters()).device.type == "cpu",
                bf16=False,
                report_to="none",
                **options,
            )
            self._trl = _Losses(
                model=module,
                reward_funcs=lambda prompts, **columns: [0.0] * len(prompts),
                args=config,
                train_dataset=Dataset.from_dict({"prompt": ["1", "2"]}),
                processing_class=tokenizer,
            )
        # Set afterwards: TRL would load a reference of its own.
        self._trl.beta = self.settings.beta
        module.eval()

    def _loss(
        self,
        batch: Sampled,
        coefficient: torch.Tensor,
        weight: torch.Tensor,
        referred: torch.Tensor | None,
        sums: Sums,
    ) -> torch.Tensor:
        inputs = {
            "prompt_ids": batch.prompts,
            "prompt_mask": batch.prompt_mask.long(),
            "completion_ids": batch.tokens,
            "completion_mask": batch.mask.long(),
            "advantages": coefficient.to(batch.logp),
            "old_per_token_logps": batch.logp,
            "num_items_in_batch": 1.0 / weight[0],
        }
        if referred is not None:
            inputs["ref_per_token_logps"] = referred
        loss: torch.Tensor = self._trl._compute_loss(self._trl.model, inputs)
        now, entropy = self._trl.seen
        self._measure(batch, now, entropy, coefficient[:, None].to(now), referred, sums)
        self._trl._metrics["eval"].clear()
        if self.settings.loss == "dapo":
            return loss
        # TRL's mean is over these rows; theirs in the minibatch's is a part of it.
        share = weight * (batch.lengths.cpu() if self.settings.loss == "grpo" else self.settings.max_tokens)
        return loss * float(share.sum())


class _Losses(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, with an eye on the probabilities that it computes."""

    seen: tuple[torch.Tensor, torch.Tensor]

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self.seen = (found[0].detach(), found[1].detach())
        return found
