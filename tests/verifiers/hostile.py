"""Inputs made to hang, crash, blind, fill or leave the process that judges them, and what each may come to.

`+` allows the verdict "right", `-` the verdict "wrong", `t` a timeout, `c` a crash, `u` unparsable, `r` refused. More
than one letter stands where it depends on the speed of the machine, or on a version of Python or of a library.
"""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

from vapo.verifiers import Item, Outcome
from vapo.verifiers.exact import Exact
from vapo.verifiers.gym import ReasoningGym
from vapo.verifiers.marker import FormatMarker
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.python_tests import PythonTests
from vapo.verifiers.regex import Regex
from vapo.verifiers.rules import Rule

__all__ = ["Attack", "attacks", "letter"]

MEGABYTE = 1_000_000


class Attack(NamedTuple):
    """One hostile input."""

    rule: Rule
    name: str
    allowed: str
    item: Item


def letter(outcome: Outcome) -> str:
    """An outcome as one letter."""
    if outcome.failure is not None:
        return outcome.failure.value[0]
    return "+" if outcome.verdict == 1 else "-"


MATH = {
    "power tower": ("t", "9**9**9**9"),
    "power tower with carets": ("t", "9^9^9^9"),
    "power tower in LaTeX": ("tcu-", r"$9^{9^{9^{9}}}$"),
    "power tower in a box": ("tcu-", r"\boxed{9^{9^{9^{9^{9}}}}}"),
    "ten to the ten to the ten": ("tcu-", "10**10**10"),
    "twos all the way up": ("tcu-", "2**(2**(2**(2**(2**(2**2)))))"),
    "factorial of ten million": ("tcu-", "$10000000!$"),
    "factorial of a factorial": ("tcu-", "$((20!)!)!$"),
    "binomial of a billion": ("tcu-", r"$\binom{1000000000}{500000000}$"),
    "200 nested parentheses": ("+tcu-", "(" * 200 + "46" + ")" * 200),
    "200 nested parentheses in LaTeX": ("+tcu-", "$" + "(" * 200 + "46" + ")" * 200 + "$"),
    "5000 nested parentheses": ("+tcu-", "$" + "(" * 5000 + "46" + ")" * 5000 + "$"),
    "nested fractions": ("tcu-", "$" + r"\frac{1}{" * 200 + "2" + "}" * 200 + "$"),
    "nested roots": ("tcu-", "$" + r"\sqrt{" * 300 + "2" + "}" * 300 + "$"),
    "a thousand open boxes": ("tcu-", r"\boxed{" * 1000),
    "a box that never ends": ("tcu-", r"\boxed{" + "{" * 50_000),
    "a megabyte of digits": ("tcu-", "9" * MEGABYTE),
    "a megabyte of letters": ("tcu-", "x" * MEGABYTE),
    "a megabyte of spaces": ("tcu-", " " * MEGABYTE),
    "a megabyte of dollars": ("tcu-", "$" * MEGABYTE),
    "a megabyte of backslashes": ("tcu-", "\\" * MEGABYTE),
    "a megabyte of answers": ("tcu-", "the final answer is " * 50_000),
    "a megabyte of percent signs": ("tcu-", "%" * MEGABYTE),
    "a sum of 100,000 ones": ("tcu-", "1+" * 100_000 + "1"),
    "a hundred thousand minus signs": ("tcu-", "-" * 100_000 + "1"),
    "NULs": ("+tcu-", "\x00" * 1000 + "46" + "\x00"),
    "lone surrogates": ("+tcu-", "\ud800 46 \udfff"),
    "lone surrogates in LaTeX": ("tcu-", "$\ud800\udc00\ud800$"),
    "text that runs backwards": ("+tcu-", "\u202e64\u202c \u200b\u2060\ufeff"),
    "combining marks": ("tcu-", "$" + "\u0300\u0323" * 20_000 + "$"),
    "import as an answer": ("-u", "__import__('os').system('touch {canary}')"),
    "import as LaTeX": ("tcu-", r"$__import__('os').system('touch {canary}')$"),
    "exec as an expression": ("+tcu-", "0+(exec(\"open('{canary}','w')\"))+46"),
    "division by zero": ("tcu-", "$1/0$"),
    "infinity": ("tcu-", r"$\infty - \infty$"),
    "an exponent of a billion": ("tcu-", "1e1000000000"),
    "a sum without end": ("tcu-", r"$\sum_{n=1}^{10^{10}} \frac{1}{n^{n}}$"),
    "a product of a billion": ("tcu-", r"$\prod_{n=1}^{10^{9}} n$"),
    "an integral that nobody can do": ("tcu-", r"$\int_0^{\infty} e^{-x^{x^{x}}} \sin(x^{x}) dx$"),
    "a power to expand": ("tcu-", r"$(x+y+z+1)^{500} - (x+y+z)^{500}$"),
    "a huge matrix": ("tcu-", r"$\begin{pmatrix}" + r"1 & " * 2000 + r"1\end{pmatrix}$"),
    "nothing": ("-", ""),
}

REGEX = {
    "plus of a plus": ("t", "a" * 60 + "!", "(a+)+$"),
    "two ways to say a": ("t", "a" * 60, "(a|a)*b"),
    "star of a star": ("t", "y" * 60, "(.*)*x"),
    "one or two": ("t", "a" * 100 + "!", "(a|aa)+$"),
    "words of words": ("t", "aa " * 40 + "!", r"^(\w+\s?)*$"),
    "thirty maybes": ("t", "a" * 34, "(?:a?){34}" * 2 + "b"),
    "pairs of runs": ("t-", "x" * 40_000, "(x+x+)+y"),
    "no expression": ("u", "a", "((("),
    "a count beyond counting": ("u", "a", "a{99999999999999}"),
    "a thousand brackets": ("+u", "a", "(" * 1000 + "a" + ")" * 1000),
    "NULs in both": ("+", "a\x00b", "\x00"),
    "surrogates in both": ("+", "\ud800", "[\ud800-\udfff]"),
}

TESTS = "assert f(1) == 2"
GOOD = "def f(x): return x + 1\n"
CODE = {
    "endless loop": ("t", "while True: pass"),
    "endless loop in C": ("t", "9**9**9**9"),
    "endless loop with every handler set": (
        "t",
        "import signal\nfor n in range(1, 64):\n  try: signal.signal(n, signal.SIG_IGN)\n  except Exception: pass\n"
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    ),
    "sleep": ("t", "import time; time.sleep(10**6)"),
    "catastrophic regex": ("t", "import re; re.match('(a+)+$', 'a' * 60 + '!')"),
    "fork bomb": ("-", "import os\nwhile True: os.fork()"),
    "fork bomb that hides its errors": (
        "t",
        "import os\nwhile True:\n  try: os.fork()\n  except Exception: pass",
    ),
    "fork bomb from C": ("t", "import ctypes\nwhile True: ctypes.CDLL(None).fork()"),
    "a fork by its number": ("t", "import ctypes\nwhile True: ctypes.CDLL(None).syscall(57)"),
    "processes by the library": ("-", "import subprocess; subprocess.run(['sh', '-c', ':(){ :|:& };:'])"),
    "shell": ("-", "__import__('os').system('touch {canary}') and 1 / 0"),
    "multiprocessing": ("-tc", "import multiprocessing as m\nm.Process(target=print).start()\nm.Pool(8)"),
    "thread bomb": (
        "-tc",
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(999,)).start()",
    ),
    "threads left behind": (
        "+",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(999,)).start()\n" + GOOD,
    ),
    "memory at once": ("c", "x = bytearray(10**12)"),
    "memory bit by bit": ("ct", "x = []\nwhile True: x.append(bytearray(10**6))"),
    "memory in a list of lists": ("ct", "x = []\nwhile True: x = [x, [0] * 10**6]"),
    "zip bomb": (
        "ct",
        f"import zlib\nx = zlib.decompress({zlib.compress(zlib.compress(bytes(10**9), 9), 9)!r})\n"
        "while True: x = zlib.decompress(x) * 1000",
    ),
    "a string of a terabyte": ("c", "x = 'x' * 10**12"),
    "a flood on stdout": ("+t", "for _ in range(200): print('x' * 10**6)\n" + GOOD),
    "a flood that never ends": ("t", "while True: print('x' * 10**6)"),
    "a flood on every file": (
        "ct",
        "import os\nwhile True:\n  for n in range(64):\n    try: os.write(n, b'x' * 10**6)\n    except OSError: pass",
    ),
    "a forged verdict on every file": (
        "c",
        "import os\nfor n in range(64):\n  try: os.write(n, b'0 [1,1.0,null,[0,0,0,0.0],\"\"]')\n"
        "  except OSError: pass\nos._exit(0)",
    ),
    "sys.exit": ("-", "import sys; sys.exit(0)"),
    "os._exit": ("c", "import os; os._exit(0)"),
    "abort": ("c", "import os; os.abort()"),
    "segmentation fault": ("c", "import ctypes; ctypes.string_at(0)"),
    "stack overflow": ("-ct", "import sys\nsys.setrecursionlimit(10**9)\ndef g(): return g()\ng()"),
    "closing every file": ("c", "import os; os.closerange(0, 10**4)\n" + GOOD),
    "an alarm": ("c", "import signal; signal.setitimer(signal.ITIMER_REAL, 0.1); signal.pause()"),
    "SIGTERM ignored": (
        "t",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()",
    ),
    "killing its parent": ("+", "import os\nfor n in (15, 9): os.kill(os.getppid(), n)\n" + GOOD),
    "killing everybody": ("-", "import os; os.kill(-1, 9)"),
    "killing its group": ("c", "import os; os.killpg(0, 9)"),
    "stopping its group": ("t", "import os, signal; os.killpg(0, signal.SIGSTOP)"),
    "killing the first thousand": (
        "-c",
        "import os\nfor n in range(3, 1000):\n  try: os.kill(n, 9)\n  except OSError: pass\n1 / 0",
    ),
    "stopping itself": ("t", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"),
    "more memory than allowed": ("-", "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"),
    "limits for the process that judges": (
        "-",
        "import os, resource\nfor one in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS):\n"
        "  resource.prlimit(os.getppid(), one, (1, 1))\n" + GOOD,
    ),
    "the worst rank for the process that judges": (
        "-",
        "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)\n" + GOOD,
    ),
    "memory that outlives its process": (
        "-",
        "import ctypes\nlibc = ctypes.CDLL(None)\nfor call in (libc.shmget, libc.semget, libc.msgget):\n"
        "  assert call(0, 1, 0o1600) >= 0 or call(0, 0o1600, 0) >= 0\n" + GOOD,
    ),
    "settings of the machine": ("-", "open('/proc/sys/kernel/core_pattern', 'r+b')\n" + GOOD),
    "the worst chance for itself": ("-", "open('/proc/self/oom_score_adj', 'r+b')\n" + GOOD),
    "filling the disk": ("-", "with open('a', 'wb') as f:\n  while True: f.write(bytes(10**6))"),
    "filling memory by files": (
        "-",
        "import os\nfor n in range(10**6): open(str(n), 'wb').write(bytes(10**6))",
    ),
    "a file outside": ("-", "open('{canary}', 'w').write('x')"),
    "deleting everything": ("+t", "import shutil; shutil.rmtree('/', ignore_errors=True)\n" + GOOD),
    "reading its parent's memory": ("-", "import os; open(f'/proc/{os.getppid()}/mem', 'rb')"),
    "writing to the disk itself": (
        "-",
        "import glob\nfor n in glob.glob('/dev/[svn][dv]*') or ['/dev/sda']: open(n, 'r+b')",
    ),
    "a socket": ("-", "import socket; socket.create_connection(('127.0.0.1', 22), 1)"),
    "a socket on the machine": (
        "-",
        "import socket; socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
    ),
    "new namespaces": ("-", "import ctypes; 1 / (1 + ctypes.CDLL(None).unshare(0x10000000))"),
    "asking for input": ("-", "input()"),
    "no builtins left": (
        "-c",
        "__builtins__.clear() if isinstance(__builtins__, dict) else 0\nraise Exception",
    ),
    "NULs": ("-", "def f(x):\x00 return x + 1"),
    "lone surrogates": ("-", "def f(x): return '\ud800'"),
    "200 nested parentheses": ("-c", "x = " + "(" * 200 + ")" * 200),
    "a million nested brackets": ("-c", "x = " + "[" * MEGABYTE),
    "a megabyte of operators": ("-ct", "x = " + "-" * MEGABYTE + "1"),
    "a megabyte of nothing": ("-", "\n" * MEGABYTE),
    "bad encoding": ("-", "# -*- coding: rot13 -*-\ndef f(x): return 1"),
}

GYM = {
    "an import": ("r", "spiral_matrix", "__import__('os').system('touch {canary}')"),
    "an import in disguise": ("-c", "spiral_matrix", "[exec('imp'+'ort os; os.system(\"touch {canary}\")')]"),
    "a file outside": ("-c", "spiral_matrix", "[open('{canary}', 'w').write('x')]"),
    "a list without end": ("-t", "spiral_matrix", "[*iter(int, 1)]"),
    "a terabyte": ("-c", "spiral_matrix", "['x' * 10**12]"),
    "leaving": ("-c", "spiral_matrix", "[exit()]"),
    "another scorer for the next": ("-c", "spiral_matrix", "[setattr(int, 'x', 1)]"),
    "power tower": ("tc-", "countdown", "9**9**9**9"),
    "power tower of sympy": ("tc-", "countdown", "factorial(factorial(factorial(9)))"),
    "no entry": ("u", "", "46"),
    "an entry of nobody": ("u", "no_such_dataset", "46"),
}

PLAIN = {
    "a megabyte of digits": ("u-t", "9" * MEGABYTE),
    "a megabyte of groups": ("u-t", "1" + ",111" * (MEGABYTE // 4) + "1"),
    "a megabyte of boxes": ("u-t", r"\boxed{" * (MEGABYTE // 7)),
    "combining marks": ("u-t", "\u0300\u0323" * (MEGABYTE // 2)),
    "NULs": ("u-t", "\x00" * MEGABYTE),
    "lone surrogates": ("u-t", "\ud800" * MEGABYTE),
    "an exponent of a billion": ("u-", "1e1000000000"),
    "nothing": ("u-", ""),
}

ENTRIES = {
    "spiral_matrix": {
        "answer": "1 2 4 3",
        "metadata": {"source_dataset": "spiral_matrix", "solution": [1, 2, 4, 3]},
    },
    "countdown": {
        "answer": "40+6",
        "metadata": {"source_dataset": "countdown", "numbers": [40, 6], "target": 46, "expression": "40+6"},
    },
}


def attacks(canary: str = "/canary") -> list[Attack]:
    """All of them; those that try to leave a file somewhere leave it under this name."""

    def item(name: str, completion: str, reference: str = "46") -> Item:
        return Item(name, "", completion.replace("{canary}", canary), reference)

    found = [Attack(MathVerify(), name, allowed, item(name, text)) for name, (allowed, text) in MATH.items()]
    found += [
        Attack(Regex(), name, allowed, item(name, text, pattern))
        for name, (allowed, text, pattern) in REGEX.items()
    ]
    found += [
        Attack(PythonTests(), name, allowed, item(name, text, TESTS))
        for name, (allowed, text) in CODE.items()
    ]
    found += [
        Attack(
            ReasoningGym(),
            name,
            allowed,
            item(
                name,
                text,
                json.dumps(ENTRIES.get(data, {"answer": "", "metadata": {"source_dataset": data}})),
            ),
        )
        for name, (allowed, data, text) in GYM.items()
    ]
    for rule in (Numeric(), Exact(), FormatMarker("#", "#")):
        found += [Attack(rule, name, allowed, item(name, text)) for name, (allowed, text) in PLAIN.items()]
    return found
