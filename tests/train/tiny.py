"""A language model so small that a trainer's step takes milliseconds, and what is needed to compare steps exactly."""

from __future__ import annotations

import numpy as np
import torch
import trl.trainer.utils
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from vapo.actuator import Actuator
from vapo.policy import Reason
from vapo.train.batch import Admission
from vapo.train.models.base import Sampled
from vapo.train.trl import VapoGRPOTrainer

# TRL uses a name that transformers has just renamed.
THEIRS = "ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning"
LETTERS = "0123456789+-*/=(). \n"
PROMPTS = ["1+2=", "12+34=", "9*9=", "7-5="]
GENERATIONS = 4
ROWS = len(PROMPTS) * GENERATIONS


def tokenizer():
    words = {"<pad>": 0, "<eos>": 1, **{letter: number + 2 for number, letter in enumerate(LETTERS)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>", padding_side="left"
    )


def save_model(folder):
    """A model with random weights, in float64, saved where TRL can read a reference from."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(LETTERS) + 2,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        initializer_range=0.4,
    )
    LlamaForCausalLM(config).double().save_pretrained(folder)
    return str(folder)


def load_model(folder, *, shift=0.0):
    """The saved model; `shift` moves its weights, so that it is not its own reference."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight += shift * torch.randn(weight.shape, generator=noise, dtype=torch.float64)
    return model


class ExactHead:
    """TRL's chunked kernel accumulates in float32; the same function in the precision of its input."""

    @staticmethod
    def apply(hidden, weight, bias, labels, temperature, chunk, softcap, scale, outputs):
        del chunk, softcap
        law = torch.log_softmax(
            torch.nn.functional.linear(hidden, weight, bias) * scale / temperature, dim=-1
        )
        entropy = -(law.exp() * law).sum(dim=-1) if "entropy" in outputs else None
        return law.gather(1, labels[:, None])[:, 0], entropy, None, None, None


def exact(monkeypatch):
    monkeypatch.setattr(trl.trainer.utils, "_ChunkedLogProbFunction", ExactHead)


def completions():
    """Token ids of every completion, of different lengths, some cut off at the cap of 8."""
    chance = np.random.default_rng(0)
    found = []
    for _ in range(ROWS):
        length = int(chance.integers(1, 9))
        ids = chance.integers(2, len(LETTERS) + 2, length).tolist()
        found.append(ids if length == 8 else [*ids, 1])
    return found


def verdicts():
    """Rewards of 0 and 1; the last group is unanimous."""
    found = np.random.default_rng(1).integers(0, 2, ROWS).astype(float)
    found[-GENERATIONS:] = 1.0
    return found.tolist()


class Canned:
    """In front of a trainer class: given completions and given verdicts, by prompt and by turn among its copies."""

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, **more):
        every, texts = completions(), self.processing_class.batch_decode(prompt_ids)
        place = [
            PROMPTS.index(text) * GENERATIONS + texts[:row].count(text) for row, text in enumerate(texts)
        ]
        return [every[row] for row in place], None

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        # What is logged has been added up in float32.
        self.losses = [*getattr(self, "losses", []), float(loss.detach())]
        return loss


def canned_reward(prompts, completions, **columns):
    place = [
        PROMPTS.index(text) * GENERATIONS + prompts[:row].count(text) for row, text in enumerate(prompts)
    ]
    return [verdicts()[row] for row in place]


class Plain(Canned, GRPOTrainer):
    """TRL as it is."""


class Gated(Canned, VapoGRPOTrainer):
    """Under test."""


class Dropped(Canned, GRPOTrainer):
    """TRL as it is, on the batch from which rows were dropped after advantages were computed."""

    dropped: frozenset = frozenset()

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        texts = [example["prompt"] for example in inputs]
        place = [
            PROMPTS.index(text) * GENERATIONS + texts[:row].count(text) for row, text in enumerate(texts)
        ]
        stays = torch.tensor([row for row, number in enumerate(place) if number not in self.dropped])
        rest = {name: value[stays] if value.ndim else value for name, value in output.items()}
        rest["num_items_in_batch"] = rest["completion_mask"].sum()
        return rest


class Picky:
    """Abstains from the rows that it was told, by prompt and turn; keeps what it was shown."""

    def __init__(self, dropped=(), actuator=None):
        self.dropped, self.seen, self.windows = frozenset(dropped), [], 0
        self.actuator = actuator or Actuator("identity")

    def admit(self, window, items=()):
        texts = [item.question for item in items]
        place = [
            PROMPTS.index(text) * GENERATIONS + texts[:row].count(text) for row, text in enumerate(texts)
        ]
        out = np.isin(place, list(self.dropped))
        records = window.records
        reason = np.where(out, Reason.BELOW_THRESHOLD, Reason.ACCEPTED).astype(np.uint8)
        reason[~out & (records.delta_r == 0)] = Reason.NO_PROPOSAL
        sign = np.where(reason == Reason.ACCEPTED, records.y, 0)
        score = np.linspace(0.0, 1.0, len(window))
        self.seen.append((window, list(items)))
        self.windows += 1
        return Admission(reason, score, self.actuator.magnitude(score, records.delta_r, records.kl, sign))

    def metrics(self):
        return {"windows": float(self.windows)}

    def state_dict(self):
        return {"windows": self.windows}

    def load_state_dict(self, state):
        self.windows = state["windows"]


class Watch(TrainerCallback):
    """Keeps the gradients of each step, as the optimiser would see them before it is held."""

    def __init__(self):
        self.gradients = []

    def attach(self, trainer):
        self.trainer = trainer
        # First in the row: the trainer's own callback takes gradients away.
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def on_pre_optimizer_step(self, args, state, control, **more):
        found = {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
            for name, weight in self.trainer.model.named_parameters()
        }
        self.gradients.append(found)


def dataset():
    return Dataset.from_dict({"prompt": PROMPTS, "answer": ["3", "46", "81", "2"]})


def train(
    kind, folder, out, *, dropped=(), hook=None, shift=0.1, optimiser=None, resume=None, more=None, **settings
):
    """Train a saved model for one window; the trainer, its gradients and its weights."""
    settings = {
        "per_device_train_batch_size": ROWS,
        "num_generations": GENERATIONS,
        "max_completion_length": 8,
        "learning_rate": 0.05,
        "max_grad_norm": 0.0,
        "max_steps": settings.get("num_iterations", 1),
        "lr_scheduler_type": "constant",
        "activation_checkpointing": False,
        "dataloader_pin_memory": False,
        "shuffle_dataset": False,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "logging_steps": 1,
        "seed": 1,
        **settings,
    }
    model = load_model(folder, shift=shift)
    optimiser = (optimiser or (lambda weights: torch.optim.SGD(weights, lr=0.05)))(model.parameters())
    more = dict(more or {})
    if issubclass(kind, Gated):
        more.setdefault("hook", Picky(dropped) if hook is None else hook)
    trainer = kind(
        model=model,
        reward_funcs=more.pop("reward_funcs", canned_reward),
        args=GRPOConfig(str(out), **settings),
        train_dataset=dataset(),
        processing_class=tokenizer(),
        optimizers=(optimiser, None),
        **more,
    )
    if kind is Dropped:
        trainer.dropped = frozenset(dropped)
    watch = Watch().attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, watch.gradients


def apart(first, second):
    """The largest difference between two sets of tensors, over the largest entry of the first."""
    most = max(float(value.abs().max()) for value in first.values())
    return max(float((first[name] - second[name]).abs().max()) for name in first) / most


class Small:
    """The saved model as the lean loop sees it."""

    pad, eos, name, source = 0, 1, "small", "0" * 64

    def __init__(self, module):
        self.module, self._tokenizer = module, tokenizer()

    def encode(self, text):
        return self._tokenizer(text)["input_ids"]

    def decode(self, tokens):
        return self._tokenizer.decode(tokens, skip_special_tokens=True)

    def logits(self, tokens, mask, cache=None, *, last=0):
        out = self.module(
            input_ids=tokens,
            attention_mask=mask.long(),
            past_key_values=cache or None,
            use_cache=cache is not None,
            logits_to_keep=last,
        )
        return out.logits, out.past_key_values if cache is not None else None


def canned_batch(model):
    """The same window as a `Sampled`, with the model's own probabilities."""
    prompts = [text for text in PROMPTS for _ in range(GENERATIONS)]
    rows = [model.encode(text) for text in prompts]
    wide, ids = max(map(len, rows)), completions()
    given = torch.zeros((len(rows), wide), dtype=torch.long)
    given_mask = torch.zeros((len(rows), wide), dtype=torch.bool)
    tokens = torch.zeros((len(rows), max(map(len, ids))), dtype=torch.long)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, (prompt, taken) in enumerate(zip(rows, ids, strict=True)):
        given[row, wide - len(prompt) :], given_mask[row, wide - len(prompt) :] = torch.tensor(prompt), True
        tokens[row, : len(taken)], mask[row, : len(taken)] = torch.tensor(taken), True
    finished = torch.tensor([taken[-1] == 1 for taken in ids])
    empty = torch.zeros(tokens.shape)
    return Sampled(given, given_mask, tokens, mask, empty, finished, [model.decode(taken) for taken in ids])
