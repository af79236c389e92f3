"""Container images of one layer from a few files, without a builder: as an archive, or pushed to a registry.

    image = Image({"pause": Path("/run/bin/pause")}, entrypoint=["/pause"])
    image.write_archive(Path("pause.tar"), "convoke.local/pause:1")
    image.push("10.197.0.2:5000", "pause", "1")

The format: https://github.com/opencontainers/image-spec. Equal files make equal digests. Standard library only.
"""

import hashlib
import http.client
import io
import json
import platform
import tarfile
import urllib.parse

PUSH_SECONDS = 30
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
# As Go calls them, and so do images.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def digest(blob):
    """The name of a blob."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


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
    """An image of executable files (path in the image: path here) and symbolic links (path: target)."""

    def __init__(self, files, links=None, entrypoint=()):
        content = {path: source.read_bytes() for path, source in files.items()}
        folders = {str(parent) for path in (*files, *(links or {})) for parent in parents(path)}
        layer = pack(
            [entry(folder, type=tarfile.DIRTYPE) for folder in sorted(folders)]
            + [entry(path, content[path]) for path in sorted(content)]
            + [entry(path, type=tarfile.SYMTYPE, linkname=target) for path, target in sorted((links or {}).items())]
        )
        config = json.dumps(
            {
                "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
                "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            }
        ).encode()
        self.blobs = {digest(blob): blob for blob in (layer, config)}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": describe(CONFIG, config),
                "layers": [describe(LAYER, layer)],
            }
        ).encode()

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

    def push(self, registry, repository, tag):
        """Pushes to REGISTRY (ADDRESS:PORT, plain http) and gives the digest. Raises OSError when it refuses."""
        connection = http.client.HTTPConnection(registry, timeout=PUSH_SECONDS)
        base = f"/v2/{repository}"
        try:
            for name, blob in self.blobs.items():
                where = send(connection, "POST", f"{base}/blobs/uploads/", b"", {}, 202)
                where = urllib.parse.urlsplit(where)
                query = f"{where.query}&digest={urllib.parse.quote(name)}".lstrip("&")
                kind = {"Content-Type": "application/octet-stream"}
                send(connection, "PUT", f"{where.path}?{query}", blob, kind, 201)
            send(connection, "PUT", f"{base}/manifests/{tag}", self.manifest, {"Content-Type": MANIFEST}, 201)
        finally:
            connection.close()
        return digest(self.manifest)


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
