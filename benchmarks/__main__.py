"""Every page that is measured rather than written: `python -m benchmarks`, or some of them with `--only`."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "speed": ("benchmarks.speed", "docs/speed.md"),
    "ledger": ("benchmarks.ledger", "docs/ledger-cost.md"),
    "sharpness": ("benchmarks.sharpness", "docs/sharpness.md"),
    "pool": ("benchmarks.verifier_pool", "docs/verifier-pool.md"),
    "faults": ("benchmarks.verifier_faults", "docs/verifier-faults.md"),
    "validity": ("tests.conformance", "docs/validity.md"),
}
"""By name: the module that measures, and the page that it writes. Sharpness and validity take long."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts one after the other; fail when one of them does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="a part (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="speed at a small size, on the screen only")
    given = parser.parse_args(arguments)
    failed = []
    for name, (module, target) in PARTS.items():
        wanted = name in given.only if given.only else not given.quick or name == "speed"
        if not wanted or importlib.util.find_spec(module) is None:
            continue
        options = ["--quick"] if given.quick and name == "speed" else ["--page", target]
        print(f"{name}: {' '.join(options)}", file=sys.stderr)
        if subprocess.run([sys.executable, "-m", module, *options], cwd=_ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"not met: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
