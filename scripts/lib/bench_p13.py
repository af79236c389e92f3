"""P13: from `git push` to an agent whose pod answers, and to one that runs a newly built image. `scripts/bench P13` runs it.

Needs root. Standard library only.
"""

import argparse
import json

import bench_builds
import bench_node


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench P13", description="From git push to an agent that answers.")
    parser.add_argument("--runs", type=int, default=5, help="pushes of each kind (default 5)")
    parser.add_argument("--json", action="store_true", help="every sample, as JSON")
    chosen = parser.parse_args()
    if chosen.runs < 1:
        parser.error("--runs must be at least 1")
    agents = bench_node.samples_of(chosen.runs)
    builds = bench_builds.samples_of(chosen.runs)
    if chosen.json:
        print(json.dumps({"P13": agents, "P13 of a build": builds}, indent=1))
    else:
        print(bench_node.table(agents), bench_builds.table(builds), sep="\n\n")


if __name__ == "__main__":
    main()
