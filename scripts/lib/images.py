#!/usr/bin/env python3
"""Container images for the local cluster: built once, kept by content, pushed to its registry.

    images.py --root DIR --state DIR --cache DIR build|push|list [NAME...]      scripts/images runs it

An image has a key: a hash of all that it is made from, the key of its base included. What was built is kept as a
folder in OCI's layout, `CACHE/images/NAME-KEY`; the newest two of each name stay. A lock lets one run build at a time.
Builds leave nothing on the machine: their storage, mounts and temporary files are in `CACHE/images/.work`, or in a
mount namespace of their own.

Standard library only, Python 3.11 or newer, Linux, root.
"""

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import npm_packages
import oci
from image_recipes import RECIPES, Failed, debian_packages, step

# What a pushed image is tagged with. Scripts use digests.
TAG = "local"
# Goes up when images are made in another way from the same parts.
FORMAT = 2
# Builds of each image that are kept: two checkouts may differ.
KEPT = 2
MEBIBYTE = 1 << 20


class Images:
    """The images of one checkout."""

    def __init__(self, root, state, cache, binary=None):
        self.root = root
        self.state = state
        self.cache = cache
        self.store = cache / "images"
        self.work = self.store / ".work"
        self.binary = binary or root / "target/release/convoke"

    @functools.cache
    def key(self, name):
        """The key of an image. Raises Failed when a part of it is missing."""
        recipe = RECIPES[name]
        try:
            parts = [FORMAT, os.uname().machine, recipe.base and self.key(recipe.base), recipe.parts(self)]
        except FileNotFoundError as error:
            raise Failed(f"{name}: {error.filename} is missing") from error
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def folder(self, name):
        """Where an image's layout is, or will be."""
        return self.store / f"{name}-{self.key(name)}"

    def get(self, name):
        """The folder of an image's layout, which is built if it isn't there."""
        folder = self.folder(name)
        if not folder.exists():
            with self.alone():
                self.build(name)
        os.utime(folder)
        return folder

    @contextlib.contextmanager
    def alone(self):
        """Holds the lock on all builds, with an empty folder to work in."""
        if os.geteuid() != 0:
            raise Failed('building images needs root: sudo env "PATH=$PATH" scripts/images build')
        self.store.mkdir(parents=True, exist_ok=True)
        with (self.store / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                step("another run is building images; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir()
            try:
                yield
            finally:
                shutil.rmtree(self.work, ignore_errors=True)

    def build(self, name):
        """Builds an image, and before it those that it stands on, unless they are there. Holds the lock."""
        recipe = RECIPES[name]
        folder = self.folder(name)
        if folder.exists():
            return
        if recipe.base:
            self.build(recipe.base)
        debian_packages(recipe.packages)
        step(f"building the image {name}")
        began = time.monotonic()
        new = self.work / "new"
        recipe.build(self, new)
        os.rename(new, folder)
        step(f"    {size(folder) / MEBIBYTE:.0f} MiB, {time.monotonic() - began:.1f} s")
        self.remove_old(name)

    def remove_old(self, name):
        """Removes builds of an image that nobody used for long."""
        length = len(self.key(name))
        builds = [path for path in self.store.glob(f"{name}-*") if path.name[: -length - 1] == name]
        builds.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in builds[KEPT:]:
            # Never seen half gone.
            os.rename(old, self.work / "old")
            shutil.rmtree(self.work / "old")

    def run(self, *command, **more):
        """Runs a command of a build. Its output is shown when it fails, and Failed raised."""
        try:
            done = subprocess.run(
                [str(word) for word in command],
                env=os.environ | {"TMPDIR": str(self.work)} | more.pop("env", {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                **more,
            )
        except FileNotFoundError as error:
            raise Failed(f"{command[0]} is missing") from error
        if done.returncode != 0:
            lines = "\n".join(done.stdout.splitlines()[-40:])
            raise Failed(f"{' '.join(map(str, command[:6]))} ... failed:\n{lines}")
        return done.stdout

    def registry(self):
        """The address of the running cluster's registry. Raises Failed when none runs."""
        try:
            return json.loads((self.state / "cluster/ready").read_text())["registry"]
        except (OSError, ValueError, KeyError) as error:
            raise Failed("no cluster with a node runs; start one with scripts/cluster up --node", 3) from error

    def push(self, name, registry):
        """Pushes an image, built if need be; gives its name in that registry, with its digest."""
        try:
            digest = oci.push_layout(self.get(name), registry, name, TAG)
        except OSError as error:
            raise Failed(f"the registry {registry} does not take {name}: {error}", 3) from error
        return f"{registry}/{name}@{digest}"


def size(folder):
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def show(images):
    """One line an image."""
    for name, recipe in RECIPES.items():
        try:
            folder = images.folder(name)
            state = f"{size(folder) / MEBIBYTE:4.0f} MiB" if folder.exists() else "not built"
            key = images.key(name)
        except Failed:
            state, key = "not built", "-"
        print(f"{name:10} {key:12} {state:>9}  {recipe.about}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True, type=Path, help="the checkout")
    parser.add_argument("--state", required=True, type=Path, help="the state folder of its cluster")
    parser.add_argument("--cache", required=True, type=Path, help="the folder of what outlives a checkout")
    parser.add_argument("--binary", type=Path, help="the program that the image convoke takes")
    parser.add_argument("command", choices=("build", "push", "list"))
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES], metavar="NAME")
    options = parser.parse_intermixed_args()
    images = Images(options.root, options.state, options.cache, options.binary)
    names = list(dict.fromkeys(options.names)) or list(RECIPES)
    try:
        if options.command == "list":
            show(images)
            return 0
        registry = images.registry() if options.command == "push" else None
        for name in names:
            print(f"{name}={images.push(name, registry) if registry else images.get(name)}", flush=True)
        return 0
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except (npm_packages.Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
