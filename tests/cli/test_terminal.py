"""The command line as a process: speed, completion, pipes, interrupts, and what goes to which stream."""

from __future__ import annotations

import inspect
import json
import os
import resource
import signal
import subprocess
import sys
from typing import get_args

import pytest

from vapo.cli import _COMMANDS, _terms
from vapo.protocol import Protocol
from vapo.scores import score_names

VAPO = [sys.executable, "-c", "import sys; sys.argv[0] = 'vapo'; from vapo.cli import main; main()"]
COMMANDS = [room.__name__.rpartition(".")[2] for room, _ in _COMMANDS]


def shell(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*VAPO, *map(str, arguments)], capture_output=True, text=True, **more)


def completed(line: str) -> list[str]:
    words = line.split(" ")
    environment = os.environ | {
        "_VAPO_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return shell(env=environment).stdout.split("\n")


def test_help_takes_less_than_half_a_second_and_names_every_command():
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = shell("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor time, for a busy machine is no fault of the command.
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert said.returncode == 0
    assert all(command in said.stdout for command in COMMANDS)
    assert min(spent) < 0.5


def test_help_loads_no_numerics():
    code = (
        "import sys; from vapo.cli import run; run(['certify', '--help']); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_bare_vapo_shows_the_help():
    assert shell().stdout == shell("--help").stdout != ""


def test_the_version_is_told():
    said = shell("--version")
    assert said.returncode == 0
    assert said.stdout.startswith("vapo ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples_that_parse(command, vapo):
    said = vapo(command, "--help")
    assert said.code == 0
    assert "--json" in said.out
    room = next(room for room, _ in _COMMANDS if room.__name__.endswith(f".{command}"))
    for example in room.EXAMPLES:
        assert example.startswith(f"vapo {command}")
        options = [word for word in example.split() if word.startswith("--")]
        assert all(option in said.out for option in options)


def test_the_defaults_that_help_shows_are_those_of_the_protocol(vapo):
    shown = " ".join(vapo("certify", "--help").out.replace("│", " ").split())
    fields = Protocol.__dataclass_fields__
    for name in (
        "c_min",
        "b_max",
        "delta",
        "claim",
        "reach",
        "stages",
        "score",
        "signs",
        "design_fraction",
        "seed",
    ):
        option = shown[shown.index(f"--{name.replace('_', '-')} ") :]
        text = option[option.index("[default: ") + 10 :]
        assert text[: text.index("]")] == str(fields[name].default), name


def test_the_choices_are_those_of_the_library():
    hints = inspect.get_annotations(Protocol, eval_str=True)
    assert set(get_args(_terms.Claim)) == set(get_args(hints["claim"]))
    assert set(get_args(_terms.Reach)) == set(get_args(hints["reach"]))
    assert set(get_args(_terms.Signs)) == set(get_args(hints["signs"]))
    assert set(get_args(_terms.OnMissing)) == set(get_args(hints["missing_label"]))
    assert {name.rstrip(":") for name, _ in _terms.SCORES} <= set(score_names())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vapo ver", {"verify"}),
        ("vapo certify --claim ", {"frozen", "sequential", "hoeffding"}),
        ("vapo certify --reach p", {"population"}),
        ("vapo design --signs ", {"plain", "specific", "both"}),
        ("vapo certify --missing-label ", {"error", "harmful"}),
        ("vapo certify --score d", {"dawid-skene"}),
        ("vapo certify --miss", {"--missing-label"}),
    ],
)
def test_tab_completes_commands_options_and_values(line, expected):
    assert expected <= set(completed(line))


def test_a_completion_script_can_be_shown():
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    said = shell("--show-completion", "bash", env=environment)
    assert said.returncode == 0
    assert "_VAPO_COMPLETE" in said.stdout


def test_prose_goes_to_stderr_and_json_alone_to_stdout(seen, tmp_path):
    said = shell(
        "certify", seen.rollouts, "--labels", seen.labels, "--rho=0.1", "--out", tmp_path / "run", "--json"
    )
    assert said.returncode == 0
    assert said.stdout.count("\n") == 1
    assert json.loads(said.stdout)["status"] == "certified"
    assert "CERTIFIED" in said.stderr
    plain = shell("verify", tmp_path / "run")
    assert (plain.returncode, plain.stdout) == (0, "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_broken_pipe_ends_quietly_and_the_work_is_done(world, tmp_path, stream):
    out = tmp_path / "d.csv"
    arguments = ["gate", world.certified, world.fresh, "--out", out, "--json"]
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [*VAPO, *map(str, arguments)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write},  # type: ignore[call-overload]
    )
    os.close(write)
    texts = process.communicate()
    assert process.returncode == 0
    assert out.is_file()
    assert b"Traceback" not in b"".join(text or b"" for text in texts)
    assert b"BrokenPipe" not in b"".join(text or b"" for text in texts)


@pytest.mark.parametrize(
    ("encoding", "name"), [("ascii", "täglich.csv"), ("utf-8", os.fsdecode(b"\xff.csv"))]
)
def test_what_a_stream_cannot_write_is_escaped_in_json(tmp_path, encoding, name):
    streams = os.environ | {"PYTHONIOENCODING": f"{encoding}:strict"}
    said = shell("verifiers", "audit", tmp_path / name, "--json", env=streams)
    assert said.returncode == 2
    assert name in json.loads(said.stdout)["error"]["message"]


def test_an_interrupt_says_that_the_work_can_be_taken_up():
    process = subprocess.Popen(
        [*VAPO, "demo", "--questions", "20000", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert "interrupted" in err
    assert "Traceback" not in err


def test_a_defect_has_an_exit_code_of_its_own(vapo, monkeypatch, seen):
    def broken(path: object) -> None:
        del path
        raise ZeroDivisionError

    monkeypatch.setattr("vapo.ledger.verify_run", broken)
    said = vapo("verify", seen.certified, "--json")
    assert said.code == 3
    assert said.json["error"]["kind"] == "Defect"
    assert "Traceback" in said.err
