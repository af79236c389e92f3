"""npm packages for clusters without a way out: a registry made of files.

    fill(lock, folder, "http://packages.convoke-system.svc:8080/npm", cache)

The lock is npm's own (package-lock.json, version 3): names, versions and digests. In the folder is then what a server of plain
files answers with: `NAME` (what npm calls a packument: versions, dependencies, where the tarball is) and `-/….tgz`.
npm asks for `@scope%2fname`, which is the file `@scope/name`.

Standard library only, Python 3.11 or newer.
"""

import base64
import concurrent.futures
import contextlib
import hashlib
import http.client
import io
import json
import os
import tarfile
import urllib.error
import urllib.request

REGISTRY = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
SECONDS = 60
# How often a download is tried.
TRIES = 3
AT_ONCE = 8
# Of one tarball, compressed; and of its package.json.
MOST_BYTES = 100 << 20
MOST_MANIFEST = 1 << 20
# What an install goes by.
FIELDS = (
    *("name", "version", "bin", "engines", "os", "cpu", "libc"),
    *("dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta", "bundleDependencies"),
)


class Failed(Exception):
    """A package cannot be had; says which and why."""


def locked(lock):
    """The packages of a lock file: sorted (name, version, digest in the form of Subresource Integrity)."""
    packages = json.loads(lock.read_text())["packages"]
    found = set()
    for place, entry in packages.items():
        if place:
            found.add((entry.get("name") or place.rpartition("node_modules/")[2], entry["version"], entry["integrity"]))
    return sorted(found)


def tarball(name, version, integrity, cache):
    """The tarball of a package, which a folder keeps. Raises Failed when it cannot be had, or is another one."""
    file = cache / f"{name.replace('/', '-').lstrip('@')}-{version}.tgz"
    with contextlib.suppress(FileNotFoundError):
        content = file.read_bytes()
        if matches(content, integrity):
            return content
    content = download(name, version, integrity)
    cache.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.rename(file)
    return content


def download(name, version, integrity):
    """The tarball of a package, from the registry. Raises Failed."""
    url = f"{REGISTRY}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
    for attempt in range(1, TRIES + 1):
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as reply:
                length = reply.length
                content = reply.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            # What the server refuses, it will refuse again.
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == TRIES:
                raise Failed(f"{url}: {error}") from error
            continue
        if len(content) > MOST_BYTES:
            raise Failed(f"{url} is larger than {MOST_BYTES} bytes")
        # A reply that was cut off gives no error when it is read with a limit.
        if length is None or len(content) == length:
            break
        if attempt == TRIES:
            raise Failed(f"{url} gave {len(content)} of {length} bytes")
    if not matches(content, integrity):
        raise Failed(f"{url} is not what the lock file names")
    return content


def matches(content, integrity):
    """Whether content has one of the digests that are named; weak ones don't count."""
    for one in integrity.split():
        algorithm, _, digest = one.partition("-")
        if algorithm in ("sha256", "sha384", "sha512"):
            if base64.b64encode(hashlib.new(algorithm, content).digest()).decode() == digest:
                return True
    return False


def manifest(tarball):
    """package.json of a tarball, whatever its topmost folder is called."""
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as tar:
        for member in tar:
            if member.isfile() and member.name.count("/") == 1 and member.name.endswith("/package.json"):
                return json.loads(tar.extractfile(member).read(MOST_MANIFEST))
    raise Failed("a tarball without package.json")


def fill(lock, folder, url, cache):
    """Fills the folder (missing yet) for a server at that URL; `cache` keeps tarballs. Raises Failed."""
    tarballs = folder / "-"
    tarballs.mkdir(parents=True)
    packages = locked(lock)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda package: tarball(*package, cache), packages))
    packuments = {}
    for (name, version, integrity), content in zip(packages, found, strict=True):
        file = f"{name.replace('/', '-').lstrip('@')}-{version}.tgz"
        (tarballs / file).write_bytes(content)
        described = manifest(content)
        entry = {field: described[field] for field in FIELDS if field in described}
        entry |= {"dist": {"tarball": f"{url}/-/{file}", "integrity": integrity}}
        packument = packuments.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}})
        packument["versions"][version] = entry
        # A lock has no order of versions; whoever asks for the newest gets one of these.
        packument["dist-tags"]["latest"] = version
    for name, packument in packuments.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(packument, sort_keys=True))
