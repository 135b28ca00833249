"""Language models: the embedded one, and whatever transformers loads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vapo._internal.options import call_with
from vapo.errors import InputError

if TYPE_CHECKING:
    from vapo.train.models.base import LanguageModel

__all__ = ["EMBEDDED", "cache_folder", "open_model", "trl_parts"]

EMBEDDED = "embedded"
"""The name of the model that needs no download."""


def cache_folder() -> Path:
    """Where models are kept: `$VAPO_CACHE`, or `vapo` in the user's cache folder."""
    given = os.environ.get("VAPO_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vapo"


def open_model(name: str, **options: Any) -> LanguageModel:
    """Open a language model by its name.

    Args:
        name: `embedded`; `smollm2`, once `vapo models get` has put it into the cache; a folder; or a name on the
            Hugging Face hub.
        options: For `embedded`, `task` (pre-trains it on that task's split `pretrain`), `cache`, and the fields of
            `Recipe`; for the others those of `load`.

    Raises:
        InputError: If there is no such model, or if it does not take such an option.

    Example:
        >>> from vapo.train.models.embedded import Shape
        >>> open_model("embedded", shape=Shape(width=16, layers=1, heads=2)).name
        'embedded'
    """
    if name == EMBEDDED:
        return _embedded(**options)
    from vapo.train.models.loaded import load
    from vapo.train.models.smollm2 import NAME, folder

    return call_with(load, {"name": folder() if name == NAME else name, **options}, f"model '{name}'")


def _embedded(task: Any = None, cache: str | Path | None = None, **recipe: Any) -> LanguageModel:
    from vapo.train.models.embedded import CharacterModel, Shape
    from vapo.train.models.pretrain import Recipe, pretrained

    if isinstance(recipe.get("shape"), dict):
        recipe["shape"] = call_with(Shape, recipe["shape"], "the shape of the embedded model")
    made = call_with(Recipe, recipe, f"model '{EMBEDDED}'")
    if task is None:
        return CharacterModel(made.shape, seed=made.seed)
    return pretrained(task, made, cache=cache)


def trl_parts(model: LanguageModel) -> tuple[Any, Any]:
    """A model and its tokenizer as TRL takes them; training these trains the language model itself.

    Example:
        >>> from vapo.train.models.embedded import Shape
        >>> module, tokenizer = trl_parts(open_model("embedded", shape=Shape(width=16, layers=1, heads=2)))
        >>> module.config.model_type
        'vapo-character'
    """
    from vapo.train.models.embedded import CharacterModel

    if isinstance(model, CharacterModel):
        from vapo.train.models.wrapped import as_transformers

        return as_transformers(model)
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        expected = "the embedded model, or one that transformers loaded"
        raise InputError(expected, type(model).__name__, where="argument 'model'")
    return model.module, tokenizer
