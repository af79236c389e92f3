"""What the Dockerfile promises to whoever builds Convoke's image with it: it compiles, and the program runs.

    cd scripts/lib && python3 -B -m unittest -v test_dockerfile        needs root; some minutes; scripts/test --full runs it

No image is pulled: RUST_IMAGE is the Debian of the other images with a C compiler, and this machine's own Rust.

Standard library only.
"""

import shutil
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

from test_node import run_script

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 1800
RUST = "/usr/local/rust"
# Whom this machine trusts: it may be behind a proxy that has its own authority.
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
TRUSTED = "/authorities.crt"
DEBIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


def said(*command, **options):
    """What a command prints, without the last newline. Raises when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout.rstrip("\n")


class TheCompilingStage(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="convoke-dockerfile-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.policy = self.folder / "policy.json"
        self.policy.write_text(POLICY)

    def buildah(self, *arguments, cwd=None):
        storage = ["--root", self.folder / "root", "--runroot", self.folder / "run", "--storage-driver", "vfs"]
        return said("buildah", *storage, *arguments, cwd=cwd)

    def base(self):
        """Debian, as the other images have it."""
        out, _ = run_script(ROOT / "scripts/images", "build", "debian", state=self.folder, seconds=SECONDS)
        layout = Path(out.strip().partition("=")[2])
        pulled = self.buildah("pull", "--quiet", "--signature-policy", self.policy, f"oci:{layout.name}", cwd=layout.parent)
        self.buildah("tag", pulled.splitlines()[-1], "localhost/base")

    def rust(self):
        """What the image docker.io/library/rust has, but for Rust itself."""
        container = self.buildah("from", "--pull-never", "localhost/base")
        install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev cmake make"
        self.buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", install)
        environment = (f"PATH={RUST}/bin:{DEBIAN_PATH}", f"CARGO_HTTP_CAINFO={TRUSTED}")
        self.buildah("config", *(f"--env={one}" for one in environment), container)
        self.buildah("commit", "--quiet", "--signature-policy", self.policy, container, "localhost/rust")
        self.buildah("rm", container)

    def context(self):
        """What Git knows of this checkout: nothing that was built here gets into the image."""
        context = self.folder / "context"
        for name in said("git", "ls-files", "-z", cwd=ROOT).split("\0"):
            if name and (ROOT / name).is_file():
                (context / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, context / name)
        return context

    def test_an_image_comes_from_nothing_but_the_sources(self):
        self.base()
        self.rust()
        toolchain = said("rustc", "--print", "sysroot", cwd=ROOT)
        # Said, because buildah 1.28 takes no default for the name of a stage.
        said_so = ("BINARY=build", "RUST_IMAGE=localhost/rust", "BASE_IMAGE=localhost/base")
        images = [word for argument in said_so for word in ("--build-arg", argument)]
        how = ["--isolation", "chroot", "--pull-never", "--format", "oci", "--signature-policy", self.policy]
        how += ["--volume", f"{toolchain}:{RUST}:ro", "--volume", f"{AUTHORITIES}:{TRUSTED}:ro", "--tag", "localhost/convoke"]
        self.buildah("bud", *how, *images, self.context())
        container = self.buildah("from", "--pull-never", "localhost/convoke")
        run = ["run", "--isolation", "chroot", container, "--"]
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        self.assertEqual(self.buildah(*run, "convoke", "version"), f"convoke {version}")
        # By its number, as Kubernetes has it; and nothing of the first stage is in it.
        self.assertEqual(self.buildah(*run, "id", "-u"), "65532")
        left = self.buildah(*run, "sh", "-c", "command -v gcc; ls /source 2>/dev/null; true")
        self.assertEqual(left, "")


if __name__ == "__main__":
    unittest.main()
