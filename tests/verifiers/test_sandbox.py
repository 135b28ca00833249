"""Programs run in a sandbox that keeps them from everything but their verdict; without one they do not run at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.verifiers.processes import alive, eventually, workers_of
from tests.verifiers.troublemakers import Sandboxed
from vapo.verifiers import Failure, Item
from vapo.verifiers.gym import ReasoningGym, gym_reference
from vapo.verifiers.pool import Pool
from vapo.verifiers.python_tests import PythonTests

ROOT = Path(__file__).parents[2]


def _refused(verifier) -> str:
    with Pool(verifier, workers=1) as pool:
        outcome = pool.verify([Item("a", "", "x = 1", "assert x == 1")])[0]
    return outcome.detail if outcome.failure is Failure.REFUSED else ""


@pytest.fixture(scope="module")
def sandboxed():
    reason = _refused(PythonTests())
    if reason:
        pytest.skip(reason)
    with Pool(PythonTests(), workers=2, deadline=5.0, memory=256 << 20) as pool:
        yield pool


def verdicts(pool, *pairs):
    outcomes = pool.verify([Item(str(n), "", program, tests) for n, (program, tests) in enumerate(pairs)])
    return [outcome.verdict if outcome.failure is None else outcome.failure for outcome in outcomes]


GOOD, BAD = "def f(x): return x + 1", "def f(x): return x"
CLASSES = """
import unittest
class Tests(unittest.TestCase):
    def test_one(self): self.assertEqual(f(1), 2)
    def test_two(self): self.assertEqual(f(2), 3)
"""
FUNCTIONS = "def test_one(): assert f(1) == 2\ndef test_two(): assert f(2) == 3"
CHECK = "def check(candidate):\n    assert candidate(1) == 2\ncheck(f)"


@pytest.mark.parametrize(
    "tests", ["assert f(1) == 2", CLASSES, FUNCTIONS, CHECK], ids=["assert", "class", "def", "check"]
)
def test_tests_of_every_kind_pass_and_fail(sandboxed, tests):
    fenced = f"Here it is:\n```python\n{GOOD}\n```\n"
    assert verdicts(sandboxed, (GOOD, tests), (BAD, tests), (fenced, tests)) == [1, -1, 1]


def test_tests_that_cannot_be_read_are_no_verdict(sandboxed):
    found = verdicts(sandboxed, (GOOD, ""), (GOOD, "assert f(1"), (GOOD, "\x00"))
    assert found == [Failure.UNPARSABLE] * 3


def test_the_setup_runs_before_the_program():
    if reason := _refused(PythonTests()):
        pytest.skip(reason)
    with Pool(PythonTests(setup="import math\ndef helper(): return 3"), workers=1) as pool:
        assert verdicts(pool, ("y = math.floor(helper())", "assert y == 3")) == [1]


def test_the_standard_library_is_there(sandboxed):
    program = "import asyncio, collections, decimal, heapq, json, random, re, sqlite3, tempfile, threading\n"
    program += "async def g(): return 1\nx = asyncio.run(g())\n"
    program += "with tempfile.TemporaryFile() as f: f.write(b'x')\nopen('/dev/null', 'w').write('x')"
    assert verdicts(sandboxed, (program, "assert x == 1")) == [1]


def test_no_program_finds_what_another_left(sandboxed):
    leave = "import os\nopen('left', 'w').write('x')\nos.makedirs('a/b')\nimport json\njson.dumps = None"
    look = "import json, os\nassert os.listdir('.') == [] and json.dumps"
    assert verdicts(sandboxed, *[(leave, "x = 1"), (look, "x = 1")] * 10) == [1] * 20


def test_a_program_sees_neither_processes_nor_secrets_nor_the_network(sandboxed, monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    look = f"""
        import os, socket
        assert 'API_KEY' not in os.environ
        assert {os.getpid()} not in [int(name) for name in os.listdir('/proc') if name.isdigit()] or os.getpid() < 10
        assert len([name for name in os.listdir('/proc') if name.isdigit()]) <= 2
        assert [name for _, name in socket.if_nameindex()] in ([], ['lo'])
    """
    with Pool(PythonTests(), workers=1) as pool:
        outcome = pool.verify([Item("a", "", GOOD, textwrap.dedent(look))])[0]
    # Listing interfaces opens a socket, which is refused as any other; the rest must hold before.
    assert (outcome.verdict, outcome.detail) in ((1, ""), (-1, "PermissionError"))


def test_capabilities_are_gone_and_none_can_be_regained(sandboxed):
    look = """
        lines = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
        for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
            assert int(lines[name], 16) == 0, name
        assert lines['NoNewPrivs'].strip() == '1' and lines['Seccomp'].strip() == '2'
    """
    assert verdicts(sandboxed, (GOOD, textwrap.dedent(look))) == [1]


def test_a_program_may_set_limits_for_itself_and_start_threads(sandboxed):
    program = """
        import os, resource, threading
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
        found = [resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard // 2]
        thread = threading.Thread(target=found.append, args=(True,))
        thread.start()
        thread.join()
    """
    assert verdicts(sandboxed, (textwrap.dedent(program), "assert found == [True, True]")) == [1]


def test_no_program_reaches_the_process_that_judges_the_next(sandboxed):
    before = sandboxed.replaced
    reach = """
        import os, resource, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        os.kill(os.getppid(), signal.SIGTERM)
        for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
            try:
                resource.prlimit(os.getppid(), one, (1, 1))
            except PermissionError:
                pass
    """
    found = verdicts(sandboxed, *[(textwrap.dedent(reach), "x = 1"), (GOOD, "assert f(1) == 2")] * 4)
    assert (found, sandboxed.replaced) == ([1] * 8, before)


def test_no_file_of_the_system_can_be_written_even_where_root_runs_this(sandboxed):
    look = """
        import os
        writable = []
        for folder, _, names in os.walk('/proc/sys/kernel'):
            for name in names:
                try:
                    os.close(os.open(os.path.join(folder, name), os.O_WRONLY))
                    writable.append(name)
                except OSError:
                    pass
        assert writable == [], writable
    """
    assert verdicts(sandboxed, (GOOD, textwrap.dedent(look))) == [1]


@pytest.mark.parametrize(("calls", "outcome"), [("9", 1), ("Infinity", Failure.CRASH)])
def test_a_program_that_writes_its_own_outcome_runs_up_no_bill(sandboxed, calls, outcome):
    forge = f"""
        import os, sys
        frame = sys._getframe()
        while "nonce" not in frame.f_locals:
            frame = frame.f_back
        said = frame.f_locals["nonce"] + ' [1, 1.0, null, [{calls}, 9, 9, 9.0], "forged"]'
        os.write(frame.f_locals["pipe"], said.encode())
        os._exit(0)
    """
    before = sandboxed.replaced
    (found,) = sandboxed.verify([Item("a", "", textwrap.dedent(forge), "x = 1")])
    assert (found.verdict or found.failure, found.cost[:3]) == (outcome, (0, 0, 0))
    assert sandboxed.replaced == before


def test_a_sandboxed_worker_outlives_its_items(sandboxed):
    before = sandboxed.replaced
    found = verdicts(sandboxed, *[("import os; os._exit(1)", "x"), (GOOD, "f"), ("9**9**9**9", "x")])
    assert found == [Failure.CRASH, 1, Failure.TIMEOUT]
    assert sandboxed.replaced == before


def test_any_verifier_may_ask_for_the_sandbox(sandboxed):
    with Pool(Sandboxed(), workers=1, deadline=2.0) as pool:
        found = pool.verify(
            [Item("a", "", order) for order in ("1", "sleep 60", "exit 3", "-1", "segfault", "1")]
        )
    assert [outcome.sign for outcome in found] == [1, 0, 0, -1, 0, 1]
    assert [outcome.failure for outcome in found if outcome.failure] == [
        Failure.TIMEOUT,
        Failure.CRASH,
        Failure.CRASH,
    ]


def test_a_parent_that_is_killed_leaves_no_sandbox_behind(sandboxed):
    code = """
        from tests.verifiers.troublemakers import Sandboxed
        from vapo.verifiers import Item
        from vapo.verifiers.pool import Pool
        pool = Pool(Sandboxed(), workers=2, deadline=300.0)
        pool.start()
        print("ready", flush=True)
        pool.verify([Item("a", "", "sleep 300"), Item("b", "", "sleep 300")])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        pids = workers_of(process.pid)
        assert len(pids) >= 2
        process.kill()
    assert eventually(lambda: not any(map(alive, pids)))


def test_scorers_of_reasoning_gym_judge_their_own_questions(sandboxed):
    import reasoning_gym

    asked, wanted = [], []
    for name in ("chain_sum", "countdown", "spiral_matrix", "leg_counting"):
        for entry in reasoning_gym.create_dataset(name, seed=3, size=3):
            for answer, verdict in ((str(entry["answer"]), 1), ("7 7 7", -1)):
                asked.append(Item(name, entry["question"], answer, gym_reference(entry)))
                wanted.append(verdict)
    with Pool(ReasoningGym(), workers=2) as pool:
        assert [outcome.verdict for outcome in pool.verify(asked)] == wanted
    with Pool(ReasoningGym("chain_sum"), workers=1) as pool:
        assert [outcome.verdict for outcome in pool.verify(asked[:6])] == wanted[:6]


def test_where_the_system_offers_no_isolation_programs_are_refused():
    # A user namespace in which no other can be made is a system without isolation.
    unshare = shutil.which("unshare")
    if sys.platform != "linux" or unshare is None:
        pytest.skip("needs unshare(1)")
    wrapped = [unshare, "--user", "--map-root-user", "sh", "-c"]
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces"
    if subprocess.run([*wrapped, forbid], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made to forbid others in")
    code = """
        from vapo.verifiers import Item
        from vapo.verifiers.pool import Pool
        from vapo.verifiers.python_tests import PythonTests
        from vapo.verifiers.numeric import Numeric
        with Pool(PythonTests(), workers=2) as pool:
            for outcome in pool.verify([Item("a", "", "x = 1", "assert x == 1")] * 3):
                print(outcome.failure, outcome.detail)
        with Pool(Numeric(), workers=1) as pool:
            print(pool.verify([Item("a", "", "1", "1")])[0].verdict)
    """
    script = f'{forbid}; exec "$0" -c "$1"'
    command = [*wrapped, script, sys.executable, textwrap.dedent(code)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    *refused, verdict = done.stdout.splitlines()
    assert len(refused) == 3
    assert all(line.startswith("refused no isolation here: namespaces") for line in refused)
    assert verdict == "1"
