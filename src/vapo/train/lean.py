"""The lean loop: the whole learner in one file, for models so small that a trainer's own work outweighs theirs.

The loss is the one in `vapo.train.batch`, with the price of KL to the reference beside it:

    loss = sum_i weight_i * sum_t (-min(ratio_it * c_i, clip(ratio_it) * c_i) + beta * ratio_it * kl_it)

over the rows that stay. Dropped rows are not even computed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vapo.errors import InputError, ProtocolError, VapoError
from vapo.train.batch import Admission, row_weights
from vapo.train.engine import Settings, Step, takes_step
from vapo.train.models.base import LanguageModel, Sampled, sample, score

__all__ = ["LeanEngine", "Sums"]


@dataclass(slots=True)
class Sums:
    """What is added up over a pass, on the path of its gradient."""

    tokens: int = 0
    loss: float = 0.0
    ratio: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0


class LeanEngine:
    """Sampling, scoring and policy-gradient steps on one device, in float32 or float64.

    The module stays in evaluation mode: a dropout mask would make the ratio differ from 1 where nothing moved.

    Args:
        model: What is trained, in place. Weights that ask for no gradient stay as they are.
        settings: How.

    Example:
        >>> from vapo.train.batch import Window, advantages
        >>> from vapo.train.hook import AcceptAll
        >>> from vapo.train.models.embedded import CharacterModel, Shape
        >>> engine = LeanEngine(CharacterModel(Shape(width=16, layers=1, heads=2)), Settings(max_tokens=4))
        >>> batch = engine.sample(["1+2=", "1+2="], seed=1)
        >>> window = Window.of(ids=["a", "b"], groups=["q", "q"], window="u0", y=[1, -1],
        ...                    advantage=advantages([1, 0], [0, 0]), signals={"confidence": [0.9, 0.2]})
        >>> step = engine.update(batch, AcceptAll().admit(window))
        >>> step.taken, round(step.ratio, 3), step.clip_fraction
        (True, 1.0, 0.0)
    """

    def __init__(self, model: LanguageModel, settings: Settings | None = None) -> None:
        self.model = model
        self.settings = settings or Settings()
        model.module.eval()
        self._weights = [weight for weight in model.module.parameters() if weight.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._weights,
            lr=self.settings.learning_rate,
            betas=self.settings.betas,
            weight_decay=self.settings.weight_decay,
        )
        self._reference = _frozen_copy(model) if self.settings.reference else None
        # The reference's log probabilities of the batch that was measured last: admission asks first, the loss again.
        self._measured: tuple[Sampled, torch.Tensor] | None = None
        self._updates = 0

    def sample(
        self, prompts: Sequence[str], *, seed: int, max_tokens: int = 0, temperature: float | None = None
    ) -> Sampled:
        """One completion of each prompt; see `Engine.sample`."""
        return sample(
            self.model,
            prompts,
            max_tokens=max_tokens or self.settings.max_tokens,
            temperature=self.settings.temperature if temperature is None else temperature,
            generator=torch.Generator().manual_seed(seed),
        )

    def score(self, batch: Sampled) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probability and entropy of each completion token under the present weights."""
        return self._scored(self.model, batch)

    def reference_kl(self, batch: Sampled) -> npt.NDArray[np.float64]:
        """KL of each completion to the reference: the mean over its tokens, never negative."""
        with torch.no_grad():
            now, _ = self.score(batch)
            summed = (_kl(now, self._referred(batch)) * batch.mask).sum(dim=1)
        return np.asarray((summed / batch.lengths.clamp(min=1)).double().cpu().numpy(), np.float64)

    def update(self, batch: Sampled, admission: Admission) -> Step:
        """Learn from the rows that stay.

        Args:
            batch: The window's completions.
            admission: What became of them, in the same order.

        Raises:
            VapoError: The gradient is not finite; the weights are as they were before that step.
        """
        if len(batch.tokens) != len(admission.kept):
            expected = f"an admission of {len(batch.tokens)} completions"
            raise InputError(expected, str(len(admission.kept)), where="update")
        self._updates += 1
        if not takes_step(admission):
            return Step.none()
        rows = np.flatnonzero(admission.kept)
        staying = _rows(batch, rows)
        referred = None
        if self._reference is not None:
            referred = self._referred(batch)[rows, : staying.tokens.shape[1]]
        coefficient = torch.as_tensor(admission.coefficient[rows])
        parts = np.array_split(np.arange(len(rows)), min(self.settings.minibatches, len(rows)))
        weights = _weights(staying.lengths.cpu().numpy(), parts, self.settings)
        passes = [Sums() for _ in range(self.settings.passes)]
        norm = 0.0
        for sums in passes:
            for part, weight in zip(parts, weights, strict=True):
                norm = self._optimise(staying, part, coefficient, weight, referred, sums)
        first, tokens = passes[0], sum(sums.tokens for sums in passes)
        return Step(
            taken=True,
            loss=first.loss / len(parts),
            signed_update=float(admission.updates.update.mean()),
            ratio=sum(sums.ratio for sums in passes) / tokens,
            clip_fraction=sum(sums.clipped for sums in passes) / tokens,
            kl=None if referred is None else first.kl / first.tokens,
            entropy=first.entropy / first.tokens,
            grad_norm=norm,
            tokens=tokens,
            rows=len(rows),
        )

    def _optimise(
        self,
        batch: Sampled,
        part: npt.NDArray[np.intp],
        coefficient: torch.Tensor,
        weight: torch.Tensor,
        referred: torch.Tensor | None,
        sums: Sums,
    ) -> float:
        """One optimiser step; the norm of its gradient."""
        self._optimiser.zero_grad(set_to_none=True)
        for some in _chunks(len(part), self.settings.rows_at_once):
            rows = part[some]
            lot = _rows(batch, rows)
            near = None if referred is None else referred[rows, : lot.tokens.shape[1]]
            loss = self._loss(lot, coefficient[rows], weight[some], near, sums)
            loss.backward()  # type: ignore[no-untyped-call]
            sums.loss += float(loss.detach())
        # A norm of its own where none is wanted: the clip is infinitely far away.
        longest = self.settings.max_grad_norm or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights, longest))
        if not np.isfinite(norm):
            self._optimiser.zero_grad(set_to_none=True)
            msg = f"update {self._updates}: the gradient is not finite; no step was taken"
            raise VapoError(msg)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return norm

    def _loss(
        self,
        batch: Sampled,
        coefficient: torch.Tensor,
        weight: torch.Tensor,
        referred: torch.Tensor | None,
        sums: Sums,
    ) -> torch.Tensor:
        settings = self.settings
        now, entropy = score(self.model, batch, temperature=settings.temperature)
        ratio = _ratio(now, batch, settings)
        clipped = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
        c = coefficient[:, None].to(ratio)
        each = -torch.minimum(ratio * c, clipped * c)
        if settings.beta and referred is not None:
            # The ratio is 1 in value on fresh rollouts, but not in its gradient: with it this is the gradient of KL.
            each = each + settings.beta * ratio * _kl(now, referred)
        self._measure(batch, now, entropy, c, referred, sums)
        return ((each * batch.mask).sum(dim=1) * weight.to(each)).sum()

    @torch.no_grad()
    def _measure(
        self,
        batch: Sampled,
        now: torch.Tensor,
        entropy: torch.Tensor,
        c: torch.Tensor,
        referred: torch.Tensor | None,
        sums: Sums,
    ) -> None:
        settings = self.settings
        ratio = _ratio(now, batch, settings)
        over = ((ratio > 1.0 + settings.clip_high) & (c > 0)) | ((ratio < 1.0 - settings.clip_low) & (c < 0))
        sums.tokens += int(batch.mask.sum())
        sums.ratio += float((ratio * batch.mask).sum())
        sums.clipped += float((over & batch.mask).sum())
        sums.entropy += float((entropy * batch.mask).sum())
        sums.kl += 0.0 if referred is None else float((_kl(now, referred) * batch.mask).sum())

    def _scored(self, model: LanguageModel, batch: Sampled) -> tuple[torch.Tensor, torch.Tensor]:
        found = []
        width = batch.tokens.shape[1]
        with torch.no_grad():
            for some in _chunks(len(batch.tokens), self.settings.rows_at_once):
                pair = score(model, _rows(batch, some), temperature=self.settings.temperature)
                found.append([torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in pair])
        return torch.cat([pair[0] for pair in found]), torch.cat([pair[1] for pair in found])

    def _referred(self, batch: Sampled) -> torch.Tensor:
        if self._reference is None:
            expected = "settings with a reference, to measure KL to it"
            raise InputError(expected, "reference=False", where="engine")
        if self._measured is None or self._measured[0] is not batch:
            self._measured = (batch, self._scored(self._reference, batch)[0])
        return self._measured[1]

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser and count of updates, for `torch.save`."""
        return {
            "engine": type(self).__name__,
            "model": self.model.source,
            "settings": self.settings.state_dict(),
            "updates": self._updates,
            "weights": self.model.module.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on bit for bit where `state_dict` was taken.

        Raises:
            ProtocolError: It is the state of another engine, of another model or of other settings.
        """
        mine = {
            "engine": type(self).__name__,
            "model": self.model.source,
            "settings": self.settings.state_dict(),
        }
        for name, value in mine.items():
            if state.get(name) != value:
                msg = f"the checkpoint's {name} is {state.get(name)!r}, expected {value!r}"
                raise ProtocolError(msg)
        self.model.module.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(dict(state["optimiser"]))
        self._updates = int(state["updates"])
        self._measured = None


def _ratio(now: torch.Tensor, batch: Sampled, settings: Settings) -> torch.Tensor:
    """Probability of each token over what it was sampled with, or of the completion's tokens on geometric average."""
    drift = (now - batch.logp.to(now)) * batch.mask
    if settings.level == "sequence":
        drift = (drift.sum(dim=1) / batch.lengths.clamp(min=1))[:, None].expand_as(drift)
    return drift.exp()


def _kl(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """A token's share of the KL to the reference, by the estimator that is never negative."""
    apart = reference - now
    return apart.exp() - apart - 1.0


def _weights(
    lengths: npt.NDArray[np.int64], parts: Sequence[npt.NDArray[np.intp]], settings: Settings
) -> list[torch.Tensor]:
    """Weights of each minibatch's rows: of its own mean, except that `dapo` averages over the window's tokens."""
    kept = np.ones(len(lengths), np.bool_)
    if settings.loss == "dapo":
        whole = row_weights(lengths, kept, loss="dapo", max_tokens=settings.max_tokens)
        return [torch.as_tensor(whole[part] * len(parts)) for part in parts]
    return [
        torch.as_tensor(
            row_weights(lengths[part], kept[part], loss=settings.loss, max_tokens=settings.max_tokens)
        )
        for part in parts
    ]


def _frozen_copy(model: LanguageModel) -> LanguageModel:
    frozen = copy.copy(model)
    frozen.module = copy.deepcopy(model.module).requires_grad_(requires_grad=False)
    return frozen


def _chunks(rows: int, at_once: int) -> list[npt.NDArray[np.intp]]:
    size = at_once or rows
    return [np.arange(first, min(first + size, rows)) for first in range(0, rows, size)]


def _rows(batch: Sampled, rows: npt.NDArray[np.intp]) -> Sampled:
    """Some rows of a batch, without the padding that they no longer need."""
    place = torch.as_tensor(rows)
    width = int(batch.mask[place].any(dim=0).sum())
    skip = int((~batch.prompt_mask[place].any(dim=0)).sum())
    cut = {"prompts": slice(skip, None), "prompt_mask": slice(skip, None)}
    columns: dict[str, Any] = {}
    for field in fields(Sampled):
        value = getattr(batch, field.name)
        if field.name == "texts":
            columns["texts"] = [value[row] for row in rows]
        elif value.dim() == 1:
            columns[field.name] = value[place]
        else:
            columns[field.name] = value[place][:, cut.get(field.name, slice(width))]
    return Sampled(**columns)
