"""A configuration says everything, refuses what it does not know, and has one digest for one run."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from vapo.errors import InputError
from vapo.train.arms import ARMS
from vapo.train.config import TrainConfig

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))

TABLE = """
`static` `static-surfaces` `matched-random` `matched-static` `observation-threshold` `rc-threshold`
`noise-corrected-backward` `noise-corrected-forward` `verifier-augmentation` `random-appeal` `always-secondary`
`single-signal` `confidence` `majority` `trust` `format-only` `no-certificate` `certificate-only` `certificate-appeal`
`certificate-actuator` `trust-only` `clip-kl-only` `vapo-legacy` `rc-vapo` `label-matched` `oracle`
"""


def test_every_arm_that_was_promised_is_there_and_no_other():
    assert set(ARMS) == {word.strip("`") for word in TABLE.split()}
    assert all(arm.name == name and arm.says for name, arm in ARMS.items())


def test_no_two_arms_are_the_same_value():
    seen = [(a.rule, a.reward, a.actuator, a.appeals, a.score) for a in ARMS.values()]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_is_a_configuration(path):
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    grid = {"conditions": {"all": []}, **data.pop("grid", {})}
    config = TrainConfig.from_dict(data)
    for overrides in grid["conditions"].values():
        assert config.with_overrides(overrides).updates == config.updates
    assert set(grid.get("arms", [])) <= set(ARMS)


def test_a_configuration_survives_being_written_down():
    config = TrainConfig.from_dict({"primary": {"kind": "fp-heavy", "rates": [0.3, 0.0]}, "sinks": ["wandb"]})
    assert TrainConfig.from_dict(config.as_dict()) == config


def test_toml_and_yaml_say_the_same(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML reads .yaml files")
    (tmp_path / "a.toml").write_text('arm = "static"\n[primary]\nkind = "symmetric"\nrate = 0.1\n')
    (tmp_path / "a.yaml").write_text("arm: static\nprimary: {kind: symmetric, rate: 0.1}\n")
    one, two = (TrainConfig.read(tmp_path / name) for name in ("a.toml", "a.yaml"))
    assert one == two
    assert TrainConfig.read(tmp_path / "a.toml", ["primary.rate=0.2"]).primary.rate == 0.2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"arm": "best"}, "one of the arms static"),
        ({"rolouts": {}}, "'rolouts'"),
        ({"rollouts": {"question": 8}}, "'question'"),
        ({"rollouts": {"completions": 1}}, "two completions"),
        ({"primary": {"kind": "evil"}}, "one of the channels"),
        ({"primary": {"kind": "symmetric", "rate": 2.0}}, "probability"),
        ({"regime": {"updates": 5, "windows": 6}}, "one window an update"),
        ({"evaluation": {"samples": 2, "k": [4]}}, "from 1 to the 2"),
        ({"evaluation": {"every": 0, "select": "held-out"}}, "held-out"),
        ({"learner": {"loss": "ppo"}}, "grpo"),
        ({"controls": {"coverage": 0.0}}, "share"),
        ({"certificate": {"rho": 1.5}}, "risk"),
        ({"updates": "many"}, "integer"),
        ({"further": {"primary": {}}}, "no other verifier has"),
    ],
)
def test_what_cannot_be_is_refused_by_name(data, said):
    with pytest.raises(InputError, match=said):
        TrainConfig.from_dict(data)


@pytest.mark.parametrize("text", ["seed", "=3", "arm.name=static", "nothing=1"])
def test_an_override_that_names_no_field_is_refused(text):
    with pytest.raises(InputError):
        TrainConfig().with_overrides([text])


def test_the_digest_is_that_of_what_the_run_does_and_not_of_who_looks_on():
    config = TrainConfig()
    assert config.digest == config.with_overrides(['sinks=["tensorboard"]']).digest
    assert config.digest == config.with_overrides(["controls.follows=somewhere"]).digest
    for text in ("seed=14", "learner.learning_rate=0.1", "primary.rate=0.01", "certificate.rho=0.09"):
        assert config.digest != config.with_overrides([text]).digest, text


def test_delta_is_spread_over_all_regimes_and_the_cap_is_the_gates_budget():
    config = TrainConfig.from_dict({"updates": 60, "regime": {"updates": 25}, "secondary": {"budget": 7}})
    assert (config.regimes, config.protocol.stages, config.protocol.budget) == (3, 3, 7)


def test_the_papers_scale_is_the_default():
    config = TrainConfig()
    assert (config.rollouts.calls, config.secondary.budget, config.regime.updates) == (256, 48, 25)
