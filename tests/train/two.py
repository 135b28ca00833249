"""One of several processes that train together; run as a program, told by its environment which one it is."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import torch
import trl.trainer.utils

from tests.train import tiny

LOSSES = ("grpo", "dr_grpo", "dapo")
DROPPED = {0, 3, 5, 6, 9, 13}


def main(folder: str, out: str) -> None:
    warnings.filterwarnings("error")
    warnings.filterwarnings("ignore", "`.*gradient_checkpointing.*` is deprecated", FutureWarning)
    torch.set_num_threads(1)
    trl.trainer.utils._ChunkedLogProbFunction = tiny.ExactHead
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    found = {loss: one(folder, Path(out) / "trainer", loss, rank, size) for loss in LOSSES}
    torch.save(found, Path(out) / f"{size}-{rank}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def one(folder, out, loss, rank, size):
    # Whoever asks the hook of another rank gets no answer.
    hook = tiny.Picky(DROPPED) if rank == 0 else object()
    # Padded alike, since the model's angles are in float32 and hang on the padding before a prompt.
    settings = {
        "loss_type": loss,
        "beta": 0.05,
        "num_iterations": 2,
        "epsilon": 0.05,
        "pad_to_multiple_of": 8,
    }
    settings["per_device_train_batch_size"] = tiny.ROWS // size
    trainer, gradients = tiny.train(tiny.Gated, folder, out, hook=hook, **settings)
    return {
        "gradients": gradients,
        "weights": {name: weight.detach() for name, weight in trainer.model.named_parameters()},
        "reasons": list(trainer._logs["extra"]["admission"]),
        "coefficients": list(trainer._logs["extra"]["coefficient"]),
        "windows": [] if rank else [window.records.id.to_pylist() for window, _ in hook.seen],
        "questions": [] if rank else [item.question for _, items in hook.seen for item in items],
        "kl": [] if rank else [window.records.kl for window, _ in hook.seen],
        "metrics": {name: row[name] for row in trainer.state.log_history for name in row if "vapo/" in name},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
