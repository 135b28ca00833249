"""What every language model promises: sampling and scoring are two views of one law."""

from __future__ import annotations

import pytest
import torch

from tests.train.models.tiny import MODELS, PROMPTS
from vapo.errors import InputError
from vapo.train.models.base import sample, score

# Single precision, with the sums of a few hundred products taken in another order.
CLOSE = 2e-5


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def drawn(model, *, seed=0, **options):
    options = {"max_tokens": 6, **options}
    return sample(model, PROMPTS, generator=torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_completion_scores_as_it_was_sampled(model, temperature):
    batch = drawn(model, temperature=temperature)
    logp, entropy = score(model, batch, temperature=temperature)
    assert torch.allclose(logp, batch.logp, rtol=0, atol=CLOSE)
    assert (entropy[batch.mask] > 0).all()
    assert (logp[~batch.mask] == 0).all()


def test_one_seed_gives_one_batch_and_another_seed_another(model):
    first, again, other = drawn(model), drawn(model), drawn(model, seed=1)
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.logp, again.logp)
    assert first.texts == again.texts
    assert first.texts != other.texts


def test_neither_padding_nor_neighbours_change_what_a_prompt_is_answered(model):
    together = sample(model, PROMPTS, max_tokens=5, temperature=0)
    for row, prompt in enumerate(PROMPTS):
        alone = sample(model, [prompt], max_tokens=5, temperature=0)
        assert alone.texts[0] == together.texts[row]
        width = alone.logp.shape[1]
        assert torch.allclose(alone.logp[0], together.logp[row, :width], rtol=0, atol=CLOSE)


def test_a_prompt_that_comes_often_is_read_once_and_answered_as_if_it_were_not(model):
    seen = []
    inner = model.logits

    def counted(tokens, *rest, **options):
        seen.append(len(tokens))
        return inner(tokens, *rest, **options)

    model.logits = counted
    batch = sample(model, PROMPTS, max_tokens=2, temperature=0)
    assert seen == [3, 6]
    assert len({batch.texts[row] for row in (0, 2, 5)}) == 1


def test_nothing_comes_behind_the_end_token(model):
    batch = drawn(model, max_tokens=40, temperature=1.5)
    assert batch.finished.any()
    for tokens, real, finished in zip(batch.tokens, batch.mask, batch.finished, strict=True):
        length = int(real.sum())
        assert real[:length].all()
        assert (tokens[length:] == model.pad).all()
        assert (model.eos in tokens[:length].tolist()) == bool(finished)
        assert model.eos not in tokens[: length - 1].tolist()


def test_sampled_frequencies_are_the_models_own(model):
    rows = 4000
    batch = sample(model, ["1+1="] * rows, max_tokens=1, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        out, _ = model.logits(batch.prompts[:1], batch.prompt_mask[:1], last=1)
    law = out[0, -1].softmax(-1)
    found = torch.bincount(batch.tokens[:, 0], minlength=len(law)) / rows
    spread = (law * (1 - law) / rows).sqrt()
    assert ((found - law).abs() <= 5 * spread + 1e-9).all()


def test_gradients_reach_every_weight_that_is_trained(model):
    batch = drawn(model)
    logp, _ = score(model, batch)
    logp.sum().backward()
    missing = [name for name, weight in model.module.named_parameters() if weight.grad is None]
    assert missing == []


@pytest.mark.parametrize("prompts", [[], [""]])
def test_no_prompt_and_an_empty_prompt_are_refused(model, prompts):
    with pytest.raises(InputError, match="none of them empty"):
        sample(model, prompts, max_tokens=2)


def test_a_cap_below_one_and_a_negative_temperature_are_refused(model):
    for options in ({"max_tokens": 0}, {"max_tokens": 2, "temperature": -1.0}):
        with pytest.raises(InputError, match="max_tokens >= 1 and temperature >= 0"):
            sample(model, ["1+1="], **options)
