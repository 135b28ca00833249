"""Where metrics go: always to `metrics.jsonl`, and to a tracker where one is asked for by name."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from vapo.errors import InputError

__all__ = ["SINKS", "Sink", "open_sinks"]


class Sink(Protocol):
    """Takes numbers by name, one set an update."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of one update."""
        ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


class _TensorBoard:
    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        del config
        # A folder a run: TensorBoard takes everything in one folder for one curve.
        self._writer = _needed("torch.utils.tensorboard", "tensorboard").SummaryWriter(
            str(folder / "tensorboard" / name)
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Tracked:
    """Weights & Biases, and trackio, which speaks like it."""

    def __init__(self, library: str, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        self._library = _needed(library, library)
        options = {"dir": str(folder)} if library == "wandb" else {}
        self._run = self._library.init(project="audit-first-vapo", name=name, config=dict(config), **options)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._library.finish()


class _MLflow:
    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        self._library = _needed("mlflow", "mlflow")
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            # MLflow no longer writes plain files, unless it is asked to by a variable of its own.
            self._library.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        self._library.start_run(run_name=name)
        self._library.log_params({"arm": config["arm"], "seed": config["seed"]})

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._library.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self._library.end_run()


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        expected = f"the library {package} (pip install {package}), or another sink"
        raise InputError(expected, str(error), where=f"sink '{package}'") from None


SINKS: Mapping[str, Callable[[Path, str, Mapping[str, Any]], Sink]] = {
    "tensorboard": _TensorBoard,
    "trackio": lambda folder, name, config: _Tracked("trackio", folder, name, config),
    "wandb": lambda folder, name, config: _Tracked("wandb", folder, name, config),
    "mlflow": _MLflow,
}
"""The trackers by name; each is loaded only when it is asked for."""


def open_sinks(names: Sequence[str], folder: Path, run: str, config: Mapping[str, Any]) -> list[Sink]:
    """Open the trackers that were asked for.

    What they write lies beside the run folder, not in it: they are not part of the record.

    Args:
        names: Which.
        folder: Where those that write files put them.
        run: What the run is called.
        config: What is said about it.

    Raises:
        InputError: There is no tracker of that name, or its library is not installed.

    Example:
        >>> open_sinks([], Path(), "run", {})
        []
    """
    unknown = [name for name in names if name not in SINKS]
    if unknown:
        expected = f"sinks among {', '.join(SINKS)}"
        raise InputError(expected, repr(unknown[0]))
    return [_Quiet(SINKS[name], folder, run, config) for name in names]


class _Quiet:
    """A tracker that says what it has to say on stderr: stdout is for what a command prints."""

    def __init__(
        self,
        sink: Callable[[Path, str, Mapping[str, Any]], Sink],
        folder: Path,
        run: str,
        config: Mapping[str, Any],
    ) -> None:
        with redirect_stdout(sys.stderr):
            self._sink = sink(folder, run, config)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        with redirect_stdout(sys.stderr):
            self._sink.write(step, numbers)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._sink.close()
