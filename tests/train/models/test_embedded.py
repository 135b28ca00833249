from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.train.models.tiny import SHAPE
from vapo.errors import InputError, IntegrityError
from vapo.tasks import open_task
from vapo.train.models import cache_folder, open_model
from vapo.train.models.base import sample
from vapo.train.models.embedded import ALPHABET, CharacterModel, Shape
from vapo.train.models.pretrain import Recipe, model_digest, pretrained, probability

TASK = open_task("arithmetic")
RECIPE = Recipe(accuracy=0.1, shape=SHAPE, seed=1)


def pairs(task, split):
    return [(question.prompt.plain, question.reference) for question in task.split(split)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def taught(cache):
    return pretrained(TASK, RECIPE, cache=cache)


def test_the_default_has_between_0_6_and_2_million_parameters():
    assert 600_000 <= CharacterModel().parameters <= 2_000_000


def test_every_character_survives_a_round_trip_and_no_other_is_taken():
    model = CharacterModel(SHAPE)
    assert model.decode(model.encode(ALPHABET)) == ALPHABET
    with pytest.raises(InputError, match="only the characters"):
        model.encode("12 plus 34")


def test_a_text_that_is_too_long_is_refused():
    model = CharacterModel(SHAPE)
    with pytest.raises(InputError, match="at most 48 characters"):
        sample(model, ["1" * 47] * 64, max_tokens=8)  # not all of them end at once


def test_the_checkpoint_is_the_first_that_reaches_the_accuracy_stated(taught):
    assert RECIPE.accuracy <= taught.taught["accuracy"] < RECIPE.accuracy + 0.1
    assert 0 < taught.taught["steps"] < RECIPE.most


def test_what_is_said_of_the_accuracy_is_what_sampling_shows(taught):
    asked = pairs(TASK, "train")[:60]
    expected = probability(taught, asked)
    times = 100
    prompts = [prompt for prompt, _ in asked for _ in range(times)]
    batch = sample(taught, prompts, max_tokens=4, generator=torch.Generator().manual_seed(0))
    answers = [answer for _, answer in asked for _ in range(times)]
    found = sum(text == answer for text, answer in zip(batch.texts, answers, strict=True)) / len(answers)
    assert abs(found - expected) < 5 * (0.25 / len(answers)) ** 0.5


def test_equal_recipes_give_equal_weights_whatever_the_threads_and_the_global_seed(taught, tmp_path):
    torch.manual_seed(99)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = pretrained(TASK, RECIPE, cache=tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert again.source == taught.source
    for name, weight in taught.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name])


def test_another_seed_task_or_habit_is_another_model(taught):
    others = [
        dataclasses.replace(RECIPE, seed=2),
        dataclasses.replace(RECIPE, accuracy=0.55),
        dataclasses.replace(RECIPE, copies=0.1),
    ]
    digests = {model_digest(TASK, recipe) for recipe in (RECIPE, *others)}
    elsewhere = open_task("arithmetic", left=(0, 8), right=(0, 9), shares={"pretrain": 1.0})
    assert len(digests | {model_digest(elsewhere, RECIPE)}) == 5
    assert taught.source in digests


def test_no_other_split_is_looked_at(taught, tmp_path):
    task = TASK
    swapped = dataclasses.replace(
        task,
        splits={"pretrain": task.split("pretrain"), "train": task.split("test"), "test": task.split("train")},
    )
    again = pretrained(swapped, RECIPE, cache=tmp_path)
    assert again.source == taught.source
    for name, weight in taught.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name])


def test_a_kept_model_comes_back_without_being_taught_again(taught, cache, monkeypatch):
    monkeypatch.setattr("vapo.train.models.pretrain.teach", lambda *_, **__: pytest.fail("taught again"))
    again = pretrained(TASK, RECIPE, cache=cache)
    assert again.taught == taught.taught
    assert torch.equal(again.module.norm.weight, taught.module.norm.weight)


@pytest.mark.parametrize("damage", ["flip", "cut", "text"])
def test_kept_weights_that_were_changed_are_refused(taught, cache, tmp_path, damage):
    name = f"embedded-{taught.source}.safetensors"
    data = bytearray((cache / name).read_bytes())
    if damage == "flip":
        data[-5] ^= 1
    (tmp_path / name).write_bytes(
        {"flip": data, "cut": data[: len(data) // 2], "text": b"no weights"}[damage]
    )
    with pytest.raises(IntegrityError, match="delete it to teach it anew"):
        pretrained(TASK, RECIPE, cache=tmp_path)


def test_an_accuracy_that_is_not_reached_is_said_with_what_was(tmp_path):
    with pytest.raises(InputError, match=r"an accuracy of 0\.9 within 10 steps, got 0"):
        pretrained(TASK, Recipe(accuracy=0.9, most=10, shape=SHAPE), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_default_model_reaches_one_half_on_pairs_that_nobody_taught_it(tmp_path):
    model = pretrained(TASK, cache=tmp_path)
    assert 0.5 <= model.taught["accuracy"] < 0.65
    # 800 questions of other pairs: three standard errors around what was measured, and as much around that.
    assert abs(probability(model, pairs(TASK, "test")) - model.taught["accuracy"]) < 0.1


def test_a_model_copies_the_question_only_if_it_was_taught_to(taught, tmp_path):
    copies = [(prompt, prompt.rstrip("=")) for prompt, _ in pairs(TASK, "test")]
    assert probability(taught, copies) < 1e-6
    copying = pretrained(TASK, Recipe(accuracy=0.1, copies=0.3, shape=SHAPE, seed=4), cache=tmp_path)
    assert probability(copying, copies) > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": 1.0}, "a share in"),
        ({"accuracy": 0.6, "copies": 0.5}, "leaves room"),
        ({"measured": 0.0}, "something to measure"),
        ({"depth": 3}, "model 'embedded' takes"),
        ({"shape": {"width": 30, "heads": 4}}, "multiple of the heads"),
        ({"shape": {"depth": 4}}, "the shape of the embedded model takes"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        open_model("embedded", task=TASK, **options)


def test_a_task_without_questions_to_pretrain_on_is_refused(tmp_path):
    task = open_task("arithmetic", shares={"train": 1.0})
    with pytest.raises(InputError, match="got 'pretrain'"):
        pretrained(task, RECIPE, cache=tmp_path)


def test_models_are_kept_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("VAPO_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("VAPO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vapo"


def test_a_width_that_its_heads_do_not_divide_is_refused():
    with pytest.raises(InputError, match="multiple of the heads"):
        Shape(width=30, heads=4)
