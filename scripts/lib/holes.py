"""Puts holes back that the engine once had, one at a time, and says after how many scenarios the simulation finds each.

Each is a patch in tests/holes. One that does not apply any more, or that is not found, is a failure. The patches are
applied to a copy of the newest commit in a temporary folder, and compiled into a folder of their own below the target folder.

usage: holes.py [PART OF A NAME]...
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The rarest hole that is found needs a quarter of these; docs/testing.md says which are not found yet.
SCENARIOS = 10_000


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def find(copy, patch, target):
    """Whether the simulation finds a hole, and what to say of it."""
    applied = run(["git", "-C", copy, "apply", str(patch)])
    if applied.returncode != 0:
        return False, f"does not apply any more: {applied.stderr.strip()}"
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target), RUST_BACKTRACE="0")
    environment.update(SIMULATION_SEED="1", SIMULATION_COUNT=str(SCENARIOS))
    command = ["cargo", "test", "--locked", "--lib", "simulation", "--", "--nocapture"]
    test = run(command, cwd=copy, env=environment)
    said = test.stdout + test.stderr
    run(["git", "-C", copy, "checkout", "--quiet", "."])
    after = re.search(r"failed after (\d+) scenarios", said)
    why = re.search(r"fails without the steps.*\n(.*)", said)
    if after and why:
        return True, f"found after {after[1]} scenarios: {why[1]}"
    if f"{SCENARIOS} scenarios in" in said:
        return False, f"not found in {SCENARIOS} scenarios"
    return False, "the simulation did not run:\n" + said[-2000:]


def main(parts):
    patches = sorted((ROOT / "tests/holes").glob("*.patch"))
    patches = [p for p in patches if not parts or any(part in p.name for part in parts)]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "holes"
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "convoke")
        added = run(["git", "-C", str(ROOT), "worktree", "add", "--detach", copy, "HEAD"])
        if added.returncode != 0:
            sys.exit(added.stderr)
        try:
            for patch in patches:
                good, what = find(copy, patch, target)
                failed += not good
                print(f"{'ok' if good else 'FAILED'}: {patch.stem}: {what}", flush=True)
        finally:
            run(["git", "-C", str(ROOT), "worktree", "remove", "--force", copy])
    word = "FAILED" if failed or not patches else "ok"
    print(f"test result: {word}. {len(patches) - failed} passed; {failed} failed;", flush=True)
    sys.exit(1 if failed or not patches else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
