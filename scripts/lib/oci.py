"""Container images of one layer from a few files, without a builder: as an archive, or pushed to a registry.

    image = Image({"pause": Path("/run/bin/pause")}, entrypoint=["/pause"])
    image.write_archive(Path("pause.tar"), "convoke.local/pause:1")
    image.push("10.197.0.2:5000", "pause", "1")

Larger ones that a builder made come as a folder in OCI's layout, and are pushed from there:

    push_layout(Path("python"), "10.197.0.2:5000", "python", "1")

The format: https://github.com/opencontainers/image-spec. Equal files make equal digests. Standard library only.
"""

import contextlib
import functools
import gzip
import hashlib
import http.client
import io
import json
import os
import platform
import tarfile
import urllib.parse

PUSH_SECONDS = 30
CHUNK_BYTES = 1 << 20
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
# As Go calls them, and so do images.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def digest(blob):
    """The name of a blob."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def digest_of_file(path):
    """The name of a blob that is a file here."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def pack(entries):
    """A tar archive (bytes) of (TarInfo, bytes) pairs; who made it and when leaves no trace."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def entry(name, content=b"", **fields):
    """One entry of `pack`: a regular file that all may read and execute, unless `fields` says otherwise."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o755
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


class Image:
    """An image of executable files (path in the image: path here) and symbolic links (path: target).

    `config` is more of its configuration, as OCI names it: User, Env, ExposedPorts, Labels. `compressed`: the layer is in gzip.
    """

    def __init__(self, files, links=None, entrypoint=(), config=None, compressed=False):
        content = {path: source.read_bytes() for path, source in files.items()}
        folders = {str(parent) for path in (*files, *(links or {})) for parent in parents(path)}
        layer = pack(
            [entry(folder, type=tarfile.DIRTYPE) for folder in sorted(folders)]
            + [entry(path, content[path]) for path in sorted(content)]
            + [entry(path, type=tarfile.SYMTYPE, linkname=target) for path, target in sorted((links or {}).items())]
        )
        config = configuration(digest(layer), {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]} | (config or {}))
        kind, layer = (f"{LAYER}+gzip", gzip.compress(layer, mtime=0)) if compressed else (LAYER, layer)
        self.blobs = {digest(blob): blob for blob in (layer, config)}
        self.manifest = manifest(describe(CONFIG, config), describe(kind, layer))

    def write_archive(self, path, name):
        """Writes what `ctr images import` reads; the image will have this whole name."""
        index = describe(MANIFEST, self.manifest) | {"annotations": {"io.containerd.image.name": name}}
        blobs = self.blobs | {digest(self.manifest): self.manifest}
        path.write_bytes(
            pack(
                [
                    entry("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
                    entry("index.json", json.dumps({"schemaVersion": 2, "manifests": [index]}).encode()),
                    *(entry("blobs/" + name.replace(":", "/"), blob) for name, blob in blobs.items()),
                ]
            )
        )

    def write_layout(self, folder):
        """Writes it as a folder in OCI's layout, which must be empty."""
        blobs = folder / "blobs/sha256"
        blobs.mkdir(parents=True)
        for name, blob in self.blobs.items():
            blob_path(folder, name).write_bytes(blob)
        close_layout(folder, self.manifest)

    def push(self, registry, repository, tag):
        """Pushes to REGISTRY (ADDRESS:PORT, plain http) and gives the digest. Raises OSError when it refuses."""
        blobs = {name: (len(blob), functools.partial(io.BytesIO, blob)) for name, blob in self.blobs.items()}
        upload(registry, repository, tag, self.manifest, blobs)
        return digest(self.manifest)


def configuration(layer, config):
    """The configuration (bytes) of an image for this machine's kind, of one layer."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    return json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer]},
            # buildah builds on no image whose history and layers differ in number.
            "history": [{"created_by": "scripts/lib/oci.py"}],
        }
    ).encode()


def manifest(config, *layers):
    """A manifest (bytes) of references to a configuration and to layers."""
    return json.dumps(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": list(layers)}
    ).encode()


def blob_path(folder, name):
    """Where a layout has the blob of a name."""
    return folder / "blobs" / name.replace(":", "/")


def close_layout(folder, manifest):
    """Writes what makes a folder with blobs a layout of the image of this manifest."""
    blob_path(folder, digest(manifest)).write_bytes(manifest)
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    index = {"schemaVersion": 2, "manifests": [describe(MANIFEST, manifest)]}
    (folder / "index.json").write_text(json.dumps(index))


def layout_of_tar(tar, folder, config):
    """Writes a layout of one layer: a tar archive, which moves there."""
    (folder / "blobs/sha256").mkdir(parents=True)
    name = digest_of_file(tar)
    layer = {"mediaType": LAYER, "digest": name, "size": tar.stat().st_size}
    os.replace(tar, blob_path(folder, name))
    config = configuration(name, config)
    blob_path(folder, digest(config)).write_bytes(config)
    close_layout(folder, manifest(describe(CONFIG, config), layer))


def layout_of_folder(source, folder, base):
    """Writes a layout of what `buildah push ... dir:SOURCE` wrote, whose blobs move there.

    Blobs that the layout `base` has, too, take no space of their own.
    """
    (folder / "blobs/sha256").mkdir(parents=True)
    text = (source / "manifest.json").read_bytes()
    parts = json.loads(text)
    for part in (parts["config"], *parts["layers"]):
        blob = blob_path(folder, part["digest"])
        if blob_path(base, part["digest"]).exists():
            os.link(blob_path(base, part["digest"]), blob)
        else:
            os.rename(source / blob.name, blob)
    close_layout(folder, text)


def layout_manifest(folder):
    """The manifest (bytes) of the one image of a layout."""
    index = json.loads((folder / "index.json").read_text())
    return blob_path(folder, index["manifests"][0]["digest"]).read_bytes()


def push_layout(folder, registry, repository, tag):
    """Pushes a layout to REGISTRY (ADDRESS:PORT, plain http) and gives the digest. Raises OSError when it refuses.

    One request when the tag is that image already.
    """
    text = layout_manifest(folder)
    parts = json.loads(text)
    if tagged(registry, repository, tag) != digest(text):
        blobs = {
            part["digest"]: (part["size"], functools.partial(blob_path(folder, part["digest"]).open, "rb"))
            for part in (parts["config"], *parts["layers"])
        }
        upload(registry, repository, tag, text, blobs)
    return digest(text)


def tagged(registry, repository, tag):
    """The digest of the image of a tag; None when there is none."""
    connection = http.client.HTTPConnection(registry, timeout=PUSH_SECONDS)
    with contextlib.closing(connection):
        connection.request("HEAD", f"/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFEST})
        reply = connection.getresponse()
        return reply.getheader("Docker-Content-Digest") if reply.status == 200 else None


def upload(registry, repository, tag, manifest, blobs):
    """Pushes an image: its manifest, and blobs (digest: size and what opens it) that the repository lacks."""
    connection = http.client.HTTPConnection(registry, timeout=PUSH_SECONDS, blocksize=CHUNK_BYTES)
    base = f"/v2/{repository}"
    with contextlib.closing(connection):
        for name, (size, opener) in blobs.items():
            connection.request("HEAD", f"{base}/blobs/{name}")
            reply = connection.getresponse()
            reply.read()
            if reply.status == 200:
                continue
            where = send(connection, "POST", f"{base}/blobs/uploads/", b"", {}, 202)
            where = urllib.parse.urlsplit(where)
            query = f"{where.query}&digest={urllib.parse.quote(name)}".lstrip("&")
            kind = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            with opener() as blob:
                send(connection, "PUT", f"{where.path}?{query}", blob, kind, 201)
        send(connection, "PUT", f"{base}/manifests/{tag}", manifest, {"Content-Type": MANIFEST}, 201)


def parents(path):
    """The folders above a relative path, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def describe(kind, blob):
    """A reference to a blob."""
    return {"mediaType": kind, "digest": digest(blob), "size": len(blob)}


def send(connection, method, path, body, headers, wanted):
    """One request; gives the Location of the reply. Raises OSError when the status is not the wanted one."""
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    text = reply.read(4096)
    reply.read()
    if reply.status != wanted:
        raise OSError(f"{method} {path}: {reply.status} {reply.reason}: {text.decode(errors='replace')}")
    return reply.getheader("Location", "")
