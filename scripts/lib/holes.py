"""Puts holes back that the engine once had, one at a time, and says after how many scenarios the simulation finds each.

Each is a patch in tests/holes. One that does not apply any more, or that is not found, is a failure. A patch whose first line is
`held by: TEST` is not looked for by the simulation, which cannot show it: that test of the library has to fail with it instead; the
lines below say why. The patches are applied to a copy of the newest commit in a temporary folder, and compiled into a folder of their own below the target folder.

usage: holes.py [PART OF A NAME]...
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# As many as `scripts/test` runs; docs/testing.md says how many each needs.
SCENARIOS = 10_000
CAMPAIGN = "no_scenario_deletes_without_proof"


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def judged(test, said):
    """What came of a test that is to fail."""
    if re.search(r"^test .*" + re.escape(test) + r".* FAILED$", said, re.M):
        return True, f"held by {test}"
    if re.search(r"^test result: ok\. [1-9]", said, re.M):
        return False, f"{test} does not notice it"
    return False, f"{test} did not run:\n" + said[-2000:]


def find(copy, patch, target):
    """Whether the simulation finds a hole, and what to say of it."""
    applied = run(["git", "-C", copy, "apply", str(patch)])
    if applied.returncode != 0:
        return False, f"does not apply any more: {applied.stderr.strip()}"
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target), RUST_BACKTRACE="0")
    environment.update(SIMULATION_SEED="1", SIMULATION_COUNT=str(SCENARIOS))
    held = re.match(r"held by: (\S+)\n", patch.read_text())
    test = held[1] if held else CAMPAIGN
    # The core alone is compiled faster than both packages.
    files = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)
    package = ["-p", "convoke-core"] if all(file.startswith("core/") for file in files) else []
    profile = [] if held else ["--profile", "simulation"]
    command = ["cargo", "test", "--locked", *profile, *package, "--lib", test, "--", "--nocapture"]
    ended = run(command, cwd=copy, env=environment)
    said = ended.stdout + ended.stderr
    run(["git", "-C", copy, "checkout", "--quiet", "."])
    if held:
        return judged(test, said)
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
