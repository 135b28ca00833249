from __future__ import annotations

import pytest
import torch
from tokenizers import processors

from tests.train.models.tiny import PROMPTS, QWEN, TEMPLATE, llama, qwen
from vapo.errors import InputError
from vapo.tasks import Prompt
from vapo.train.models import open_model
from vapo.train.models.base import sample, score
from vapo.train.models.loaded import LoadedModel
from vapo.train.models.wrapped import character_tokenizer


def saved(model, folder):
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("make", [llama, qwen])
def test_what_was_saved_loads_with_equal_logits(make, tmp_path):
    model = make()
    loaded = open_model(str(saved(model, tmp_path)))
    assert type(loaded.module) is type(model.module)
    batch = sample(model, PROMPTS, max_tokens=4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(score(loaded, batch)[0], score(model, batch)[0])


def test_the_source_follows_the_files(tmp_path):
    model = llama()
    first = open_model(str(saved(model, tmp_path / "a"))).source
    assert open_model(str(saved(model, tmp_path / "b"))).source == first
    with torch.no_grad():
        next(model.module.parameters()).mul_(1.001)
    assert open_model(str(saved(model, tmp_path / "c"))).source != first


def test_the_weights_take_the_type_that_was_asked_for(tmp_path):
    loaded = open_model(str(saved(llama(), tmp_path)), dtype="float64")
    assert next(loaded.module.parameters()).dtype == torch.float64


def test_a_chat_template_is_filled_up_to_the_beginning_of_the_answer():
    model = llama()
    prompt = Prompt("7*14", system="1", prefill="7*14=")
    assert model.render(prompt) == "1\n\n7*14\n\n7*14="
    model.tokenizer.chat_template = TEMPLATE
    assert model.render(prompt) == "(1)\n(7*14)\n=7*14="


def test_templates_that_ask_for_the_date_get_one_that_stays():
    model = llama()
    model.tokenizer.chat_template = "{{ date_string }}|{{ enable_thinking }}"
    assert model.render(Prompt("1")) == "26 Jul 2024|False"


def test_special_tokens_of_a_template_do_not_come_twice():
    tokenizer = character_tokenizer()
    first = processors.TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 1)])
    tokenizer.backend_tokenizer.post_processor = first
    tokenizer.chat_template = "<eos>{{ messages[0]['content'] }}"
    model = LoadedModel(llama().module, tokenizer, name="t", source="0" * 64)
    tokens = model.encode(model.render(Prompt("1+1=")))
    assert tokens.count(1) == 1
    assert tokenizer(model.render(Prompt("1+1=")))["input_ids"] == tokens


def test_without_a_template_the_tokenizer_adds_what_it_always_adds():
    tokenizer = character_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", 1)]
    )
    model = LoadedModel(llama().module, tokenizer, name="t", source="0" * 64)
    assert model.encode("1+1=")[0] == 1


@pytest.mark.parametrize("name", ["Qwen/Qwen3.5-0.8B", "meta-llama/Llama-3.2-3B-Instruct"])
def test_a_model_that_cannot_be_had_is_an_input_error(name, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="on the Hugging Face hub that can be reached"):
        open_model(name, revision="0" * 40)


def test_folders_without_a_model_and_unknown_options_are_named(tmp_path):
    with pytest.raises(InputError, match=r"a folder without config\.json"):
        open_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="a causal language model with its tokenizer"):
        open_model(str(tmp_path))
    with pytest.raises(InputError, match="takes, got got an unexpected keyword argument 'quantised'"):
        open_model(str(tmp_path), quantised=True)


def test_a_tokenizer_without_an_end_is_refused():
    tokenizer = character_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(InputError, match="an end token"):
        LoadedModel(llama().module, tokenizer, name="t", source="0" * 64)


def test_of_a_published_model_that_also_sees_the_language_model_is_loaded(tmp_path):
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    sight = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    config = Qwen3_5Config(
        text_config=QWEN, vision_config=sight | {"patch_size": 4}, tie_word_embeddings=True
    )
    whole = Qwen3_5ForConditionalGeneration(config).eval()
    whole.save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    loaded = open_model(str(tmp_path))
    assert loaded.module.config.model_type == "qwen3_5_text"
    tokens = torch.tensor([loaded.encode("12+34=")])
    with torch.no_grad():
        found, _ = loaded.logits(tokens, torch.ones_like(tokens))
        assert torch.allclose(whole(input_ids=tokens).logits, found, rtol=0, atol=1e-5)
