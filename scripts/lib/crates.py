#!/usr/bin/env python3
"""Holds the rules of deny.toml: licenses, banned crates, wildcard versions and sources of all crates that we link.

    crates.py ROOT      the folder of Cargo.toml, Cargo.lock and deny.toml; prints what breaks a rule, and exits 1 then

The same as `cargo deny check bans licenses sources` says of this file, without a program that takes minutes to compile. It
reads the part of the format that deny.toml uses; anything else in there is an error, so that no rule is passed over.
Licenses are those that crates declare. Standard library only, Python 3.11 or newer.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

# All keys that are understood, of each section.
KEYS = {
    "graph": {"targets"},
    "licenses": {"unused-allowed-license", "confidence-threshold", "allow"},
    "bans": {"multiple-versions", "wildcards", "deny"},
    "sources": {"unknown-registry", "unknown-git", "allow-registry", "allow-git"},
}
BAN_KEYS = {"name", "version", "reason"}
WORD = re.compile(r"\s*([()]|[A-Za-z0-9.+:-]+)")


class Failed(Exception):
    """What cannot be read or is not understood."""


def read_rules(text):
    """The rules in deny.toml. Raises Failed when something in it is not understood."""
    rules = tomllib.loads(text)
    for section, value in rules.items():
        if section not in KEYS:
            raise Failed(f"deny.toml: [{section}] is not understood here")
        for key in value.keys() - KEYS[section]:
            raise Failed(f"deny.toml: {key} in [{section}] is not understood here")
    for ban in rules["bans"]["deny"]:
        if "name" not in ban or ban.keys() - BAN_KEYS:
            raise Failed(f"deny.toml: {ban} in [bans] is not understood here")
    for section, key in (("bans", "wildcards"), ("sources", "unknown-registry"), ("sources", "unknown-git")):
        if rules[section].get(key) != "deny":
            raise Failed(f"deny.toml: {key} in [{section}] must be \"deny\"")
    return rules


def words(expression):
    """The words of an SPDX expression. Raises Failed when it has others."""
    # crates.io took `A/B` for `A OR B` once.
    expression = expression.replace("/", " OR ").strip()
    found, at = [], 0
    while at < len(expression):
        match = WORD.match(expression, at)
        if not match:
            raise Failed(f"no license expression: {expression}")
        found.append(match[1])
        at = match.end()
    return found


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met with these licenses. Raises Failed when it cannot be read.

    AND binds stronger than OR, WITH strongest. `L WITH E` is another license than L.
    """
    left = words(expression)

    def next_is(word):
        if left and left[0].upper() == word:
            left.pop(0)
            return True
        return False

    def either():
        good = both()
        while next_is("OR"):
            good = both() or good
        return good

    def both():
        good = one()
        while next_is("AND"):
            good = one() and good
        return good

    def one():
        if next_is("("):
            good = either()
            if not next_is(")"):
                raise Failed(f"no license expression: {expression}")
            return good
        if not left or left[0].upper() in ("AND", "OR", "WITH", ")"):
            raise Failed(f"no license expression: {expression}")
        name = left.pop(0)
        if next_is("WITH"):
            if not left:
                raise Failed(f"no license expression: {expression}")
            name += f" WITH {left.pop(0)}"
        used.add(name)
        return name in allowed

    used = set()
    good = either()
    if left:
        raise Failed(f"no license expression: {expression}")
    is_allowed.used |= used
    return good


# What expressions named, to tell of a license that is allowed and that nothing has.
is_allowed.used = set()


def is_banned(ban, package):
    """Whether a ban is about this package: of all versions, or of one like `1` or `1.2`."""
    if package["name"] != ban["name"]:
        return False
    version = ban.get("version")
    if version is None:
        return True
    if not re.fullmatch(r"=?\d+(\.\d+)*", version):
        raise Failed(f"deny.toml: the version {version} of {ban['name']} is not understood here")
    return f"{package['version']}.".startswith(f"{version.lstrip('=')}.")


def source_problem(source, rules):
    """What is wrong with where a crate comes from, or None. No source is a folder of ours."""
    if source is None:
        return None
    kind, _, address = source.partition("+")
    if kind in ("registry", "sparse"):
        good = address.rstrip("/") in {allowed.rstrip("/") for allowed in rules["allow-registry"]}
        return None if good else f"comes from the registry {address}"
    if kind == "git":
        address = re.split(r"[?#]", address)[0]
        return None if address in rules["allow-git"] else f"comes from the Git repository {address}"
    return f"comes from {source}"


def problems(rules, packages, locked):
    """Everything that breaks a rule, one line each, sorted.

    `packages` are those of `cargo metadata` that are linked, `locked` those of Cargo.lock: all that any system may link.
    """
    found = set()
    for package in packages:
        name = f"{package['name']} {package['version']}"
        license = package.get("license")
        if not license:
            found.add(f"{name} declares no license")
        else:
            try:
                if not is_allowed(license, rules["licenses"]["allow"]):
                    found.add(f"{name} has a license that is not allowed: {license}")
            except Failed as error:
                found.add(f"{name}: {error}")
        for ban in rules["bans"]["deny"]:
            if is_banned(ban, package):
                found.add(f"{name} is banned: {ban.get('reason', 'see deny.toml')}")
        for dependency in package["dependencies"]:
            if dependency["req"].strip() == "*":
                found.add(f"{name} takes any version of {dependency['name']}")
    for package in locked:
        problem = source_problem(package.get("source"), rules["sources"])
        if problem:
            found.add(f"{package['name']} {package['version']} {problem}")
    return sorted(found)


def cargo(root, *arguments):
    """What a command of Cargo prints."""
    done = subprocess.run(["cargo", *arguments], cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"cargo {arguments[0]} failed, see above")
    return done.stdout


def linked(root, targets):
    """The packages that are linked for one of these systems, those of tests and build scripts included."""
    # `cargo metadata` names crates, too, that no feature takes in; `cargo tree` does not.
    systems = [f"--target={target}" for target in targets]
    tree = cargo(root, "tree", "--locked", *systems, "--prefix=none", "--no-dedupe", "--format={p}")
    # `name v1.2.3 (proc-macro)`
    there = {tuple(line.split(" ")[:2]) for line in tree.splitlines()}
    systems = [f"--filter-platform={target}" for target in targets]
    metadata = json.loads(cargo(root, "metadata", "--locked", "--format-version=1", *systems))
    return [p for p in metadata["packages"] if (p["name"], f"v{p['version']}") in there]


def main():
    root = Path(sys.argv[1])
    try:
        rules = read_rules((root / "deny.toml").read_text())
        packages = linked(root, rules["graph"]["targets"])
        locked = tomllib.loads((root / "Cargo.lock").read_text())["package"]
        found = problems(rules, packages, locked)
    except (Failed, OSError, tomllib.TOMLDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for license in rules["licenses"]["allow"]:
        if license not in is_allowed.used:
            print(f"warning: no crate has the license {license}, which deny.toml allows", file=sys.stderr)
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(packages)} crates, {len(found)} problems", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
