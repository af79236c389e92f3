"""`append.lockFile`: packages of Python as a layer of their own, from an index that the test serves.

test_builds.py runs this test in its cluster. It needs nothing of its other tests. Standard library only.
"""

import hashlib
import json
import socket
import subprocess
import sys
import unittest
import urllib.request
import zipfile

from agents_stage import condition, is_ready
from builds_stage import APPENDED, NAMESPACE, TEKTON, stage

BUILD = "appended"
WHEEL = "demo-1.0-py3-none-any.whl"
# The agent starts only where the package is found.
COMMAND = ["python", "-c", "import demo, runpy; runpy.run_module('convoke_agent', run_name='__main__', alter_sys=True)"]


def wheel(path):
    """Makes the wheel of the package `demo` 1.0: a module and a program. Gives its sha256."""
    info = "demo-1.0.dist-info"
    files = {
        "demo/__init__.py": "def say():\n    print('demo 1.0')\n",
        f"{info}/entry_points.txt": "[console_scripts]\nsay-demo = demo:say\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


class PackagesOfALockFile(unittest.TestCase):
    """Where Pod Security `restricted` is enforced."""

    def serve(self):
        """Serves the index to pods; gives its URL, and the hash of the wheel."""
        folder = stage.state / "index"
        (folder / "simple/demo").mkdir(parents=True)
        found = wheel(folder / "simple/demo" / WHEEL)
        with socket.socket() as free:
            free.bind((stage.machine(), 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-B", "-m", "http.server", "--bind", stage.machine(), "--directory", folder, str(port)]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait, 20)
        self.addCleanup(server.terminate)
        stage.eventually("the index listens", lambda: stage.listens(f"{stage.machine()}:{port}"), 20)
        return f"http://{stage.machine()}:{port}/simple", found

    def files(self, note, index, found):
        """The files of the stage, with a lock file."""
        files = stage.appended_files(note)
        build = json.loads(files["appended-build.json"])
        build["spec"]["append"] |= {"lockFile": "requirements.txt", "command": COMMAND}
        build["spec"]["pipeline"] = {"parameters": [{"name": "index-url", "value": index}]}
        lock = f"demo==1.0 \\\n    --hash=sha256:{found}\n"
        return files | {"appended-build.json": json.dumps(build), f"{APPENDED}/requirements.txt": lock}

    def ended(self, commit, phase):
        """Waits until the build of a commit has ended like this; gives its status."""

        def look():
            status = stage.get("agentbuilds", BUILD).get("status", {})
            assert status.get("phase") == phase, json.dumps(status, indent=1)
            assert status["lastAttemptedCommit"] == commit, json.dumps(status, indent=1)
            return status

        return stage.eventually(f"{commit} is {phase}", look)

    def runs(self, image):
        """Waits until the agent runs an image; gives the name of its pod."""

        def look():
            assert is_ready(stage.get("agents", BUILD))
            (pod,) = stage.pods("agent", BUILD)
            assert pod["spec"]["containers"][0]["image"] == image
            assert condition(pod, "Ready")[0] == "True"
            return pod["metadata"]["name"]

        return stage.eventually(f"the agent runs {image}", look)

    def layers(self, image):
        """The digests of the layers of an image."""
        registry = stage.registry()
        name, _, digest = image.partition("@")
        url = f"http://{registry}/v2/{name.partition('/')[2]}/manifests/{digest}"
        accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=accept), timeout=20) as reply:
            return [layer["digest"] for layer in json.load(reply)["layers"]]

    def test_1_b11_packages_of_a_lock_file_are_there_and_stay_when_the_code_changes(self):
        # Without it, Tekton's own containers say nothing of their security.
        stage.api.merge("configmaps", TEKTON, "feature-flags", {"data": {"set-security-context": "true"}})
        stage.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
        index, found = self.serve()
        layers = []
        for note in ("locked", "locked again"):
            status = self.ended(stage.push(self.files(f"{note}\n", index, found)), "Succeeded")
            pod = self.runs(status["builtImage"])
            said = stage.kubectl("-n", NAMESPACE, "exec", pod, "--", "say-demo")
            self.assertEqual(said.strip(), "demo 1.0")
            said = stage.kubectl("-n", NAMESPACE, "exec", pod, "--", "cat", "/app/note")
            self.assertEqual(said.strip(), note)
            layers.append(self.layers(status["builtImage"]))
        steps = [step["name"] for step in status["steps"]]
        self.assertEqual(steps, ["clone", "verify", "dependencies-check", "dependencies-install", "append"])
        one, two = layers
        self.assertEqual(one[:-1], two[:-1], "the layer of the packages is the same")
        self.assertNotEqual(one[-1], two[-1])
        status = self.ended(stage.push(self.files("wrong\n", index, "0" * 64)), "Failed")
        failure = status["failure"]
        self.assertEqual((failure["class"], failure["reason"]), ("Source", "LockFileRefused"), failure)
        self.assertEqual((failure["step"], failure["exitCode"]), ("dependencies-install", 24), failure)
        self.assertIn("another hash: demo==1.0", failure["message"])
        self.runs(status["builtImage"])
