"""What a Dockerfile that has left its chroot could do: it shows each step of the build another image.

builds_scans.py runs it in place of the step that builds, as root in that step's container, with all that is mounted there. Standard library only.

    hostile_build.py exchange    a bad image when it is copied, a good one while it is scanned, the bad one when it is pushed
    hostile_build.py forge       a good image, and another digest in the results that all steps share
"""

import hashlib
import io
import json
import os
import sys
import tarfile
import time

SOURCE = "/workspace/source"
RESULTS = "/tekton/results"
PACKAGE = "convoke-test-package"
FORGED = "sha256:" + "f" * 64
SECONDS = 120


def look():
    print("this container has", os.listdir("/workspace"), os.listdir(SOURCE), os.path.lexists("/after-build"), flush=True)


def layout(version):
    """Writes an image with the package in this version beside the place of the image; gives its folder."""
    folder = f"{SOURCE}/{version}"
    os.makedirs(f"{folder}/blobs/sha256")

    def blob(kind, content):
        digest = hashlib.sha256(content).hexdigest()
        with open(f"{folder}/blobs/sha256/{digest}", "wb") as file:
            file.write(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    metadata = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n".encode()
    installed = f"{PACKAGE.replace('-', '_')}-1.0.0.dist-info/METADATA"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(f"usr/lib/python3/dist-packages/{installed}")
        entry.size = len(metadata)
        tar.addfile(entry, io.BytesIO(metadata))
    layer = blob("layer.v1.tar", archive.getvalue())
    rootfs = {"type": "layers", "diff_ids": [layer["digest"]]}
    config = blob("config.v1+json", json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode())
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer]}
    manifest = blob("manifest.v1+json", json.dumps(manifest).encode())
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "image"}
    for name, content in (("oci-layout", {"imageLayoutVersion": "1.0.0"}), ("index.json", {"schemaVersion": 2, "manifests": [manifest]})):
        with open(f"{folder}/{name}", "w") as file:
            json.dump(content, file)
    return folder


def show(version):
    """This image is the one in the workspace from now on."""
    if os.path.exists(f"{SOURCE}/image"):
        with open(f"{SOURCE}/image/version") as file:
            os.rename(f"{SOURCE}/image", f"{SOURCE}/{file.read()}")
    os.rename(f"{SOURCE}/{version}", f"{SOURCE}/image")
    with open(f"{SOURCE}/image/version", "w") as file:
        file.write(version)
    print("the image is", version, flush=True)


def end_of(step):
    """The file that says that a step has ended. The next one waits for it."""
    return os.readlink(f"/tekton/steps/step-{step}").removesuffix("/status") + "/out"


def until_end_of(step, meanwhile=lambda: None):
    file, until = end_of(step), time.monotonic() + SECONDS
    while not (os.path.exists(file) or os.path.exists(f"{file}.err")):
        meanwhile()
        if time.monotonic() > until:
            sys.exit(f"{step} does not end")
    print(step, "has ended", flush=True)


def begin_next():
    """The next step believes that this one has ended, and begins while it goes on."""
    with open(end_of("build"), "w"):
        pass


def exchange():
    has_copy = os.path.lexists("/tekton/steps/step-copy")
    show("1.0.0" if has_copy else "2.0.0")
    begin_next()
    if has_copy:
        until_end_of("copy", lambda: time.sleep(0.05))
        show("2.0.0")
    until_end_of("scan-image-check", lambda: time.sleep(0.05))
    show("1.0.0")
    until_end_of("push", lambda: time.sleep(0.05))


def forge():
    show("2.0.0")
    begin_next()

    def write():
        with open(f"{RESULTS}/IMAGE_DIGEST", "w") as file:
            file.write(FORGED)
        time.sleep(0.001)

    until_end_of("push", write)


def main():
    look()
    for version in ("1.0.0", "2.0.0"):
        layout(version)
    {"exchange": exchange, "forge": forge}[sys.argv[1]]()


if __name__ == "__main__":
    main()
