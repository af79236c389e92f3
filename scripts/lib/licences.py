#!/usr/bin/env python3
"""Holds the rules of licences.toml: the licence of each package that a lock file brings into an image.

    licences.py ROOT locks                   which packages no lock may name; needs no package, and no network
    licences.py ROOT installed LOCK PYTHON   the packages of a lock in the virtual environment of a Python
    licences.py ROOT images CACHE            all that goes into images; downloads what the cache does not have

It prints what breaks a rule, and exits 1 then. A licence is what a package of just that version declares:
`License-Expression`, `License` and the classifiers of Python's METADATA, `license` of npm's package.json. What these
leave open is in licences.toml, with the file in which it was read. npm packages may bring others inside, which are
read, too.

What the metadata do not tell: which libraries were compiled into a package. Shared libraries of others are seen by
their names. Packages of Debian are none of these. Standard library only, Python 3.11 or newer.
"""

import collections
import csv
import dataclasses
import email.parser
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import crates
import image_recipes
import npm_packages
from images import Images

# Locks by the image that they are for. `scripts/lib/image_recipes.py` makes these images.
IMAGES = {
    "proxy/requirements.txt": "proxy",
    "runtime/requirements.txt": "agent",
    "scripts/lib/images/packages/servers.txt": "packages",
    "scripts/lib/images/packages/bridge.txt": "packages",
    "scripts/lib/images/packages/npm.json": "packages",
    "scripts/lib/images/node/packages.json": "node",
}
# What only tests install.
TESTS = {"runtime/compatibility/mcp-1.txt", "runtime/compatibility/requirements.txt"}
# Locks of other tools.
OTHER_LOCK = re.compile(r"((uv|poetry|pdm|Pipfile|yarn)\.lock|pnpm-lock\.yaml|pylock(\..+)?\.toml)$")
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)\s*(;[^\\]*)?\\?$")

# Of licences.toml. `python` and `npm` have an entry a package.
SECTIONS = {"also", "refused", "folders", "python", "npm"}
# Other words for one licence of SPDX's list.
SPELLED = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "MIT License": "MIT",
}
# None: of several versions or wordings, all of them permissive.
CLASSIFIERS = {
    "OSI Approved :: Apache Software License": None,
    "OSI Approved :: BSD License": None,
    "OSI Approved :: ISC License (ISCL)": "ISC",
    "OSI Approved :: MIT License": "MIT",
    "OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "OSI Approved :: The Unlicense (Unlicense)": "Unlicense",
}
# Shared libraries: those of Python modules do not begin with `lib`.
LIBRARY = re.compile(r"(^|/)lib[^/]*\.so(\.[^/]*)?$|\.libs/")
# package.json of a package inside of another.
INSIDE = re.compile(r"[^/]+/(?:.*/)?node_modules/((?:@[^/]+/)?[^/@]+)/package\.json")
MOST_MANIFEST = 1 << 20
READ = "read its LICENSE file and add it to scripts/lib/licences.toml"


class Failed(Exception):
    """What cannot be read or is not understood."""


@dataclasses.dataclass(frozen=True)
class Package:
    """A package as it comes into an image."""

    kind: str  # python or npm
    name: str
    version: str
    # The licence as an SPDX expression, and why there is none.
    declared: str | None
    doubt: str | None
    # Paths, and the bytes of one of them.
    files: tuple[str, ...]
    read: Callable[[str], bytes]

    @property
    def key(self):
        """The name as rules and locks have it."""
        return normal(self.name) if self.kind == "python" else self.name


# ---- the rules


def read_rules(text, deny):
    """The rules in licences.toml, with the licences that deny.toml allows. Raises Failed when it is not understood."""
    rules = tomllib.loads(text)
    for section in rules.keys() - SECTIONS:
        raise Failed(f"licences.toml: {section} is not understood")
    for kind in ("python", "npm"):
        for name, entry in rules.setdefault(kind, {}).items():
            place = {"file", "sha256"} if "file" in entry else {"version", "where"}
            if entry.keys() - {"accepted"} != {"licence"} | place:
                raise Failed(f"licences.toml: {kind}.{name} needs licence, and file with sha256 or version with where")
    rules["allowed"] = set(tomllib.loads(deny)["licenses"]["allow"]) | set(rules["also"])
    return rules


def normal(name):
    """A name of a Python package as its index compares it."""
    return re.sub("[-_.]+", "-", name).lower()


def is_allowed(licence, rules):
    """Whether an SPDX expression can be met. Raises Failed when it is none."""
    # In crates it is an `OR`; in other metadata it may be anything.
    if "/" in licence:
        raise Failed(f"no licence expression: {licence}")
    try:
        return crates.is_allowed(licence, rules["allowed"])
    except crates.Failed as error:
        raise Failed(str(error)) from error


def judged(package, rules):
    """The licence of a package, and what is wrong with it with what to do: (licence, problem, hint), or None twice."""
    refused = rules["refused"].get(package.key)
    if refused:
        return package.declared, f"is refused: {refused}", "take it out of the lock"
    for folder in rules["folders"].get(package.key, ()):
        if any(folder in path.split("/")[:-1] for path in package.files):
            return package.declared, f"has a folder {folder}, which is under another licence", "take another version"
    declared, doubt = package.declared, package.doubt
    if declared:
        try:
            good = is_allowed(declared, rules)
        except Failed as error:
            declared, doubt = None, str(error)
    carried = sorted(path for path in package.files if LIBRARY.search(path))
    entry = rules[package.kind].get(package.key)
    if entry:
        if declared and good and not carried:
            return declared, "is clear by its metadata", "take it out of scripts/lib/licences.toml"
        return entry["licence"], *by_entry(package, entry, rules)
    if not declared:
        return None, doubt, READ
    if not good:
        return declared, "is not a licence of the list", "take another package, or decide anew: docs/decisions/0023"
    if carried:
        return declared, f"carries libraries of others: {', '.join(carried)}", READ
    return declared, None, None


def by_entry(package, entry, rules):
    """What is wrong with a package that licences.toml has an entry for, and what to do; or None twice."""
    if "file" in entry:
        place = re.compile(rf"([^/]+\.dist-info/)?{re.escape(entry['file'])}")
        found = [package.read(path) for path in package.files if place.fullmatch(path)]
        if entry["sha256"] not in [hashlib.sha256(content).hexdigest() for content in found]:
            return f"has another {entry['file']} than was read, or none", READ
    elif package.version != entry["version"]:
        return f"was read of {entry['version']} only", READ
    if "accepted" not in entry and not is_allowed(entry["licence"], rules):
        return "is not a licence of the list", "take another package, or decide anew: docs/decisions/0023"
    return None, None


# ---- what packages declare


def python_licence(metadata):
    """What METADATA (a message) declares: an SPDX expression and None, or None and why."""
    if metadata["License-Expression"]:
        return metadata["License-Expression"].strip(), None
    classifiers = [
        line.removeprefix("License :: ")
        for line in metadata.get_all("Classifier", [])
        if line.startswith("License :: ")
    ]
    for classifier in classifiers:
        if classifier not in CLASSIFIERS:
            return None, f"has a classifier that is not known: {classifier}"
    text = (metadata["License"] or "").strip()
    if "\n" in text:
        return None, "has a whole text for its licence"
    if text and text != "UNKNOWN":
        return SPELLED.get(text, text), None
    if not classifiers:
        return None, "declares no licence"
    if None in map(CLASSIFIERS.get, classifiers):
        return None, f"has only a classifier that names no version: {', '.join(classifiers)}"
    # Whether one may choose is not said.
    return " AND ".join(CLASSIFIERS[classifier] for classifier in classifiers), None


def npm_licence(manifest):
    """The same of package.json."""
    found = manifest.get("license") or manifest.get("licenses")
    # As npm wrote it once.
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, dict):
        found = found.get("type")
    if not found:
        return None, "declares no licence"
    if not isinstance(found, str):
        return None, f"declares several licences: {found}"
    return SPELLED.get(found, found), None


def python_package(text, files, read):
    """A package of the text of its METADATA."""
    metadata = email.parser.HeaderParser().parsestr(text)
    return Package("python", metadata["Name"], metadata["Version"], *python_licence(metadata), tuple(files), read)


def installed(python):
    """The packages in the virtual environment of a Python."""
    folder = next(python.parent.parent.glob("lib/python*/site-packages"), None)
    if folder is None:
        raise Failed(f"{python} is not in a virtual environment")
    for info in sorted(folder.glob("*.dist-info")):
        files = [row[0] for row in csv.reader((info / "RECORD").read_text().splitlines())]
        yield python_package((info / "METADATA").read_text(), files, lambda path: (folder / path).read_bytes())


def wheel(path):
    """The package in a wheel."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        found = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        if len(found) != 1:
            raise Failed(f"{path.name} has {len(found)} METADATA files")
        text = archive.read(found[0]).decode()

    def read(name):
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)

    return python_package(text, names, read)


def npm_contents(tarball):
    """The packages in a tarball of npm: itself, and those inside."""

    def read(path):
        with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as tar:
            return tar.extractfile(path).read()

    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as tar:
        members = {member.name: member for member in tar if member.isfile()}
        for name, member in members.items():
            inside = INSIDE.fullmatch(name)
            if not inside and not re.fullmatch(r"[^/]+/package\.json", name):
                continue
            manifest = json.loads(tar.extractfile(member).read(MOST_MANIFEST))
            top = name.removesuffix("package.json")
            files = tuple(
                path.removeprefix(top) for path in members if path.startswith(top) and not INSIDE.fullmatch(path)
            )
            own = manifest.get("name") or (inside and inside[1]) or "?"
            licence = npm_licence(manifest)
            yield Package(
                "npm", own, manifest.get("version", "?"), *licence, files, lambda path, top=top: read(top + path)
            )


# ---- locks


def pip_lock(text):
    """The packages of a lock in pip's format: (name, version, whether a marker may leave it out). Raises Failed."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "--hash=")):
            continue
        match = REQUIREMENT.match(line)
        if not match:
            raise Failed(f"this line is not understood: {line.strip()}")
        found.append((normal(match[1]), match[2], bool(match[3])))
    return found


def npm_lock(path):
    """The same of npm's format."""
    try:
        return [(name, version, True) for name, version, _ in npm_packages.locked(path)]
    except (KeyError, ValueError) as error:
        raise Failed(f"an entry is not understood: {error}") from error


def read_lock(path):
    """The packages of a lock."""
    try:
        return npm_lock(path) if path.suffix == ".json" else pip_lock(path.read_text())
    except Failed as error:
        raise Failed(f"{path}: {error}") from error


def locks(root):
    """All lock files of the checkout, by what is in them. Raises Failed on one that cannot be read here."""
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed("git ls-files failed, see above")
    for name in filter(None, done.stdout.split("\0")):
        if OTHER_LOCK.search(name):
            raise Failed(f"{name}: scripts/lib/licences.py cannot read this kind of lock")
        path = root / name
        if name.endswith((".txt", ".json")) and path.is_file():
            text = path.read_text(errors="replace")
            if "--hash=sha256:" in text or '"lockfileVersion"' in text:
                yield name


def lock_problems(rules, found):
    """What is wrong with locks (name: packages): those that nobody knows, and refused packages."""
    problems = []
    for name, packages in found.items():
        if name not in IMAGES and name not in TESTS:
            problems.append(
                f"{name}: nobody checks this lock (hint: add it to IMAGES or TESTS in scripts/lib/licences.py)"
            )
        for package, version, _ in packages:
            reason = rules["refused"].get(package)
            if reason:
                problems.append(line(package, version, None, name, f"is refused: {reason}", "take it out of the lock"))
    gone = (IMAGES.keys() | TESTS) - found.keys()
    return problems + [
        f"{name}: there is no such lock (hint: take it out of scripts/lib/licences.py)" for name in sorted(gone)
    ]


def line(package, version, licence, lock, problem, hint):
    """A finding."""
    return f"{package} {version} ({licence or 'no licence'}), in {lock}: {problem} (hint: {hint})"


@dataclasses.dataclass
class Report:
    """What was found out about the packages of a lock."""

    lock: str
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    problems: list = dataclasses.field(default_factory=list)
    accepted: list = dataclasses.field(default_factory=list)
    names: set = dataclasses.field(default_factory=set)


def compare(lock, wanted, packages, rules):
    """Judges the packages of a lock, which wants `wanted`: a report.

    Each must be there, in just its version. Others may be inside of npm's.
    """
    report, there = Report(lock), set()
    versions = {(name, version) for name, version, _ in wanted}
    for package in packages:
        key = (package.key, package.version)
        there.add(key)
        report.names.add((package.kind, package.key))
        licence, problem, hint = judged(package, rules)
        if package.kind == "python" and key not in versions:
            problem, hint = "is not in the lock", "is it the environment of another lock?"
        if problem:
            report.problems.append(line(package.name, package.version, licence, lock, problem, hint))
        report.counts[licence or "none"] += 1
        reason = rules[package.kind].get(package.key, {}).get("accepted")
        if reason and not problem:
            report.accepted.append(f"{package.name} {package.version} ({licence}) is accepted: {reason}")
    for name, version, optional in wanted:
        if (name, version) not in there and not optional:
            report.problems.append(line(name, version, None, lock, "is not there", "its metadata cannot be read"))
    return report


def npm_contents_of(lock, cache):
    """The packages that npm's lock names, and those in them; but for other machines."""
    other = {name for machine, name in image_recipes.NODE_PACKAGES.items() if machine != os.uname().machine}
    for name, version, integrity in npm_packages.locked(lock):
        if name in other:
            continue
        packages = list(npm_contents(npm_packages.tarball(name, version, integrity, cache)))
        if not any((package.name, package.version) == (name, version) for package in packages):
            raise Failed(f"{lock}: the tarball of {name} {version} is another package")
        yield from packages


def check_images(root, cache, rules):
    """A report of each lock that goes into an image, of what really does."""
    images = Images(root, root / ".convoke", cache)
    for name in IMAGES:
        lock = root / name
        if lock.suffix == ".json":
            yield compare(name, read_lock(lock), npm_contents_of(lock, cache / "packages"), rules)
            continue
        folder = image_recipes.wheels_folder(cache, lock)
        if not folder.exists():
            with images.alone():
                image_recipes.download_wheels(images, lock)
        yield compare(name, read_lock(lock), map(wheel, sorted(folder.iterdir())), rules)


def unused(rules, reports):
    """Entries that no package needs."""
    names = set().union(*(report.names for report in reports))
    for kind in ("python", "npm"):
        for name in rules[kind]:
            if (kind, name) not in names:
                yield f"{name}: no package has this name (hint: take {kind}.{name} out of scripts/lib/licences.toml)"


def main(root, command, *arguments):
    root = Path(root).resolve()
    reports, problems = [], []
    try:
        rules = read_rules((root / "scripts/lib/licences.toml").read_text(), (root / "deny.toml").read_text())
        match command, *arguments:
            case ["locks"]:
                problems += lock_problems(rules, {name: read_lock(root / name) for name in locks(root)})
            case ["installed", lock, python]:
                reports.append(compare(lock, read_lock(root / lock), installed(Path(python).absolute()), rules))
            case ["images", cache]:
                reports += check_images(root, Path(cache), rules)
                problems += unused(rules, reports)
                for licence in rules["also"]:
                    if licence not in crates.is_allowed.used:
                        print(
                            f"warning: no package has the licence {licence}, which licences.toml allows",
                            file=sys.stderr,
                        )
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (Failed, image_recipes.Failed, npm_packages.Failed, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for report in reports:
        counts = ", ".join(f"{count} {licence}" for licence, count in report.counts.most_common())
        print(f"{report.lock}: {report.counts.total()} packages: {counts}", file=sys.stderr)
        for note in report.accepted:
            print(f"note: {note}", file=sys.stderr)
        problems += report.problems
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
