from __future__ import annotations

import pytest
import torch

from tests.train.models.tiny import PROMPTS, embedded, llama
from vapo.errors import InputError
from vapo.train.models import open_model, trl_parts
from vapo.train.models.base import sample, score
from vapo.train.models.wrapped import as_transformers, character_tokenizer


def batch_of(model):
    return sample(model, PROMPTS, max_tokens=5, generator=torch.Generator().manual_seed(1))


def test_the_tokenizer_has_the_models_own_tokens_and_pads_on_the_left():
    model, tokenizer = embedded(), character_tokenizer()
    rows = tokenizer(PROMPTS, padding=True)
    for prompt, tokens, mask in zip(PROMPTS, rows["input_ids"], rows["attention_mask"], strict=True):
        own = model.encode(prompt)
        assert tokens == [model.pad] * (len(tokens) - len(own)) + own
        assert sum(mask) == len(own)
        assert tokenizer.decode(tokens, skip_special_tokens=True) == prompt
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (model.pad, model.eos)


def test_the_wrapped_model_gives_the_same_log_probabilities_whatever_the_padding():
    model = embedded()
    wrapped, _ = as_transformers(model)
    batch = batch_of(model)
    whole = torch.cat([batch.prompts, batch.tokens], dim=1)
    mask = torch.cat([batch.prompt_mask, batch.mask], dim=1)
    out = wrapped(input_ids=whole, attention_mask=mask.long(), logits_to_keep=batch.tokens.shape[1] + 1)
    law = out.logits[:, :-1].log_softmax(-1).gather(2, batch.tokens[:, :, None])[:, :, 0]
    assert torch.equal(law * batch.mask, score(model, batch)[0])


def test_it_generates_what_the_embedded_model_samples():
    model = embedded()
    wrapped, tokenizer = as_transformers(model)
    rows = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    made = wrapped.generate(**rows, max_new_tokens=6, do_sample=False)
    texts = tokenizer.batch_decode(made[:, rows["input_ids"].shape[1] :], skip_special_tokens=True)
    assert texts == sample(model, PROMPTS, max_tokens=6, temperature=0).texts


def test_training_the_wrapped_model_trains_the_embedded_one():
    model = embedded()
    wrapped, _ = trl_parts(model)
    own = {id(weight) for weight in model.module.parameters()}
    assert {id(weight) for weight in wrapped.parameters()} == own
    before = score(model, batch_of(model))[0].sum().item()
    rows = torch.tensor([model.encode("1+1=2")])
    wrapped(input_ids=rows, labels=rows).loss.backward()
    with torch.no_grad():
        for weight in wrapped.parameters():
            weight -= 0.05 * weight.grad
    assert score(model, batch_of(model))[0].sum().item() != before


def test_head_and_characters_stay_one_weight_after_saving_and_loading(tmp_path):
    model = embedded()
    wrapped, tokenizer = as_transformers(model)
    wrapped.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = open_model(str(tmp_path))
    head, characters = loaded.module.get_output_embeddings(), loaded.module.get_input_embeddings()
    assert head.weight is characters.weight
    batch = batch_of(model)
    assert torch.equal(batch_of(loaded).tokens, batch.tokens)
    assert torch.equal(score(loaded, batch)[0], score(model, batch)[0])


def test_what_transformers_loaded_goes_to_a_trainer_as_it_is():
    model = llama()
    assert trl_parts(model) == (model.module, model.tokenizer)


def test_what_a_trainer_cannot_take_is_refused():
    with pytest.raises(InputError, match="one that transformers loaded"):
        trl_parts(object())
