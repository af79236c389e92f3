#!/usr/bin/env python3
"""Pushes an image of one binary with the libraries that it needs, for tests: quick, and without a base image.

    operator_image.py BINARY REGISTRY      prints the image's name, by digest

In it are the binary without its debug information, as /usr/local/bin/NAME and entry point, and this machine's CA
certificates. What users run is made from the Dockerfile instead.

Standard library only, Python 3.11 or newer, Linux.
"""

import errno
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import oci

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def libraries(binary):
    """The shared libraries of a binary, with its loader: path in an image to path here."""
    done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
    # A static binary has none.
    paths = re.findall(r"(/\S+) \(0x", done.stdout) if done.returncode == 0 else []
    return {path.lstrip("/"): Path(path) for path in paths}


def shell():
    """A shell with its commands for oci.Image: files and links. Raises OSError when this machine has no busybox."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError(errno.ENOENT, "it is missing (apt-get install busybox-static)", "busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{applet}": "busybox" for applet in listed if applet != "busybox"}
    return {"bin/busybox": Path(busybox)} | libraries(busybox), links


def main():
    binary, registry = Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        slim = Path(folder, binary.name)
        subprocess.run(["strip", "--strip-debug", "-o", slim, binary], check=True)
        name = f"usr/local/bin/{binary.name}"
        files = {name: slim, **libraries(binary)}
        if AUTHORITIES.exists():
            files[str(AUTHORITIES).lstrip("/")] = AUTHORITIES
        image = oci.Image(files, entrypoint=[f"/{name}"])
        digest = image.push(registry, f"tests/{binary.name}", "latest")
    print(f"{registry}/tests/{binary.name}@{digest}")


if __name__ == "__main__":
    main()
