"""`mode: preprod` and `prod`: sources and images that a scan or a rule refuses, and some that pass.

test_builds.py runs these tests in its cluster. They need nothing of its other tests. Standard library only.
"""

import io
import json
import os
import shutil
import subprocess
import time
import unittest
import urllib.request
import zipfile
from pathlib import Path

import oci
from agents_stage import OPERATOR, ROOT, condition
from builds_profiles import WithoutBaseline
from builds_stage import NAMESPACE, stage
from operator_image import libraries
from test_tekton import REGISTRY

FOLDER = "../images/scanned"
# In two parts: whoever scans this repository for secrets should find none.
TOKEN = "ghp_" + "wWPw5k4aXcaT4fNP0UcnZwJUVFk6LO0pINUx"
# An advisory of these tests about a package of these tests.
ADVISORY = "TEST-2026-0001"
PACKAGE = "convoke-test-package"
FIRST = "import os\n"
DOCKERFILE = "FROM scratch\nCOPY requirements.txt /requirements.txt\n"
# What a wheel leaves where it is installed.
METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0.0\n"
INSTALLED = f"{PACKAGE.replace('-', '_')}-1.0.0.dist-info/METADATA"
# What runs in an image before it is pushed.
TEST = "test -f /requirements.txt && test `id -u` = 1000"
INDEX = "application/vnd.oci.image.index.v1+json"
SPDX = "application/spdx+json"


def advisory():
    """An advisory in OSV's format: every version before 2.0.0 has a critical vulnerability."""
    events = [{"introduced": "0"}, {"fixed": "2.0.0"}]
    package = {"ecosystem": "PyPI", "name": PACKAGE}
    return {
        "schema_version": "1.6.0",
        "id": ADVISORY,
        "modified": "2026-01-01T00:00:00Z",
        "published": "2026-01-01T00:00:00Z",
        "summary": "It does what strangers say",
        "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}],
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}],
    }


def database(folder):
    """The image of a vulnerability database, as deploy/pipelines/README.md describes it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{ADVISORY}.json", json.dumps(advisory()))
    file = folder / "all.zip"
    file.write_bytes(content.getvalue())
    busybox = shutil.which("busybox")
    links = {f"bin/{name}": "busybox" for name in ("sh", "cp", "id", "ln", "ls", "mkdir")}
    files = {"bin/busybox": Path(busybox), "database/PyPI/all.zip": file}
    return oci.Image(files | libraries(busybox), links)


class WithScans(unittest.TestCase):
    """Each test goes on with the source of the one before."""

    def provide(self):
        """The images of the template's parameters, in the registry of the cluster."""
        digest = database(stage.state).push(stage.registry(), "vulnerabilities", "test")
        images = {
            "git-image": stage.in_cluster("builder"),
            "buildah-image": stage.in_cluster("builder"),
            "gitleaks-image": stage.in_cluster("scanners"),
            "osv-scanner-image": stage.in_cluster("scanners"),
            "opa-image": stage.in_cluster("scanners"),
            "vulnerability-database-image": f"{REGISTRY}/vulnerabilities@{digest}",
        }
        for name in ("pipeline-template-preprod", "pipeline-template-prod"):
            template = json.loads(stage.get("configmaps", name, OPERATOR)["data"]["template.json"])
            for parameter in template["globalParameters"]:
                parameter["value"] = images.get(parameter["name"], parameter["value"])
            stage.api.merge("configmaps", OPERATOR, name, {"data": {"template.json": json.dumps(template)}})

    def definition(self, mode="preprod", **more):
        if mode == "prod":
            more["pipeline"] = {"parameters": [{"name": "test-command", "values": ["/bin/sh", "-c", TEST]}]}
        spec = {
            "mode": mode,
            "source": {"gitSync": {}, "subfolder": "images/scanned"},
            "output": {"image": f"{NAMESPACE}/scanned", "insecure": True},
            **more,
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "scanned"}}
        return {"scanned.json": json.dumps(head | {"spec": spec})}

    def status_of(self, commit, phase):
        """The status, once the newest attempt is of this commit and has ended so."""

        def look():
            status = stage.get("agentbuilds", "scanned").get("status", {})
            assert status.get("lastAttemptedCommit") == commit, json.dumps(status, indent=1)
            assert status.get("phase") == phase, json.dumps(status, indent=1)
            return status

        return stage.eventually(f"the build of {commit} is {phase}", look)

    def refused(self, files, step, code, *words, kept=None):
        """Pushes a source that a scan refuses, for a reason that people see in the status; gives all logs of the build.

        `kept` is the image that was built before.
        """
        commit = stage.push(files)
        status = self.status_of(commit, "Failed")
        failure = status["failure"]
        self.assertEqual((failure["class"], failure["reason"]), ("Policy", "PolicyFailed"), failure)
        self.assertEqual((failure["step"], failure["exitCode"]), (step, code), failure)
        for word in words:
            self.assertIn(word, failure["message"])
            self.assertIn(word, condition({"status": status}, "Ready")[2])
        self.assertEqual(status.get("builtImage"), kept)
        self.assertIsNone(self.tagged(commit), "it was pushed")
        return self.logs(status["pipelineRun"])

    def tagged(self, commit):
        """The digest that the registry has for a commit."""
        return oci.tagged(stage.registry(), f"{NAMESPACE}/scanned", commit[:7])

    def appending(self, name):
        """The AgentBuild with this base image, which is in the registry of the cluster."""
        return self.definition(strategy="Append", append={"baseImage": f"{REGISTRY}/{name}"})

    def logs(self, run):
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        return stage.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"], "--all-containers")

    def test_1_b3_a_source_with_a_secret_is_refused_and_the_secret_is_not_shown(self):
        """A source that would like to hide its secret, and a lock file that is no better."""
        self.provide()
        files = {
            "Dockerfile": DOCKERFILE,
            "app.py": f'{FIRST}TOKEN = "{TOKEN}"  # gitleaks:allow\n',
            ".gitleaks.toml": 'title = "nothing"\n',
            ".gitleaksignore": "images/scanned/app.py:github-pat:2\napp.py:github-pat:2\n",
            "requirements.txt": f"{PACKAGE}==1.0.0\n",
            "osv-scanner.toml": f'[[IgnoredVulns]]\nid = "{ADVISORY}"\n',
        }
        files = {f"{FOLDER}/{name}": text for name, text in files.items()} | self.definition()
        logs = self.refused(files, "scan-secrets", 40, '"images/scanned/app.py" line 2: github-pat')
        self.assertIn("secrets found in folder images/scanned: 1.", logs)
        kinds = "agentbuilds,pipelineruns,taskruns,pods,events"
        shown = stage.kubectl("-n", NAMESPACE, "get", kinds, "-o", "json")
        self.assertNotIn(TOKEN, logs + shown)
        self.assertNotIn(TOKEN[4:], logs + shown)

    def test_2_b3_a_lock_file_with_a_known_vulnerability_is_refused(self):
        """The secret is out, and the lock file still names a package that the database knows."""
        files = {f"{FOLDER}/app.py": FIRST}
        found = f"images/scanned/requirements.txt: {PACKAGE} 1.0.0 (PyPI) has {ADVISORY}, critical (9.8), fixed in 2.0.0"
        logs = self.refused(files, "scan-dependencies-check", 41, found)
        self.assertIn("no secret found in images/scanned", logs)

    def test_3_b3_an_image_with_a_known_vulnerability_is_not_pushed(self):
        """The lock file is good, and the image has the package from elsewhere."""
        files = {
            f"{FOLDER}/requirements.txt": f"{PACKAGE}==2.0.0\n",
            f"{FOLDER}/site/{INSTALLED}": METADATA,
            f"{FOLDER}/Dockerfile": DOCKERFILE + "COPY site /usr/lib/python3/dist-packages\n",
        }
        self.refused(files, "scan-image-check", 42, f"{INSTALLED}: {PACKAGE} 1.0.0 (PyPI) has {ADVISORY}")

    def test_4_b3_an_image_that_breaks_a_rule_is_not_pushed(self):
        """No scan refuses it, and a rule of `mode: prod` does."""
        files = {
            f"{FOLDER}/site/{INSTALLED}": METADATA.replace("1.0.0", "2.0.0"),
            f"{FOLDER}/Dockerfile": self.with_shell("EXPOSE 80"),
        }
        found = "the image breaks a rule: the image exposes port 80: pods listen on 1024 and above"
        logs = self.refused(files | self.definition("prod"), "policy-check", 44, found)
        self.assertIn("the tests passed", logs)
        self.assertIn("no known vulnerability counts", logs)

    def test_5_b3_what_nothing_refuses_is_pushed_with_a_list_of_its_packages(self):
        """Neither the source nor the image has what a scan or a rule refuses."""
        commit = stage.push({f"{FOLDER}/Dockerfile": self.with_shell("EXPOSE 8080")})
        status = self.status_of(commit, "Succeeded")
        self.assertRegex(status["builtImage"], "@sha256:[0-9a-f]{64}$")
        names = [step["name"] for step in status["steps"]]
        self.assertEqual(names[2], "scan-secrets")
        scan = [f"scan-image-{part}" for part in ("export", "database", "scan", "check")]
        policy = [f"policy-{part}" for part in ("describe", "evaluate", "check")]
        sbom = [f"sbom-{part}" for part in ("export", "list", "check")]
        self.assertEqual(names[-13:], ["test", "copy", *scan, *policy, *sbom, "push"])
        digest = oci.tagged(stage.registry(), f"{NAMESPACE}/scanned", commit[:7])
        self.assertEqual(status["builtImage"].rpartition("@")[2], digest)
        # Whoever has the image finds the list: Debian's registry has no other way.
        index = self.pulled(f"manifests/{digest.replace(':', '-')}", INDEX)
        (entry,) = index["manifests"]
        self.assertEqual((entry["artifactType"], entry["digest"]), (SPDX, status["sbomDigest"]))
        self.assertEqual(status["history"][0]["sbomDigest"], status["sbomDigest"])
        artifact = self.pulled(f"manifests/{entry['digest']}", oci.MANIFEST)
        self.assertEqual(artifact["subject"]["digest"], digest)
        (layer,) = artifact["layers"]
        listed = self.pulled(f"blobs/{layer['digest']}", SPDX)
        self.assertEqual(listed["spdxVersion"], "SPDX-2.3")
        self.assertEqual(listed["name"], status["builtImage"])
        packages = {(package["name"], package["versionInfo"]) for package in listed["packages"]}
        self.assertIn((PACKAGE, "2.0.0"), packages)
        # The operator has signed of which commit it is.
        key = stage.state / "cosign.pub"
        key.write_text(stage.get("configmaps", "convoke-signing-public", OPERATOR)["data"]["cosign.pub"])
        program = os.environ.get("CONVOKE_BINARY") or str(ROOT / "target/release/convoke")
        image = f"{stage.registry()}/{NAMESPACE}/scanned@{digest}"
        command = [program, "verify", "image", image, "--key", key, "--insecure"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(commit, said.stdout)

    def base(self, version):
        """A base image that has the package in this version, or no package; gives its name and its digest."""
        file = stage.state / "base-of-scanned"
        file.write_text(METADATA.replace("1.0.0", version) if version != "none" else "nothing\n")
        path = f"usr/lib/python3/dist-packages/{INSTALLED}" if version != "none" else "etc/nothing"
        digest = oci.Image({path: file}, compressed=True).push(stage.registry(), "scanned-base", version)
        return f"scanned-base:{version}", digest

    def test_6_b3_an_image_without_a_package_that_the_scanner_knows_is_refused(self):
        """As `FROM scratch` makes it."""
        before = stage.get("agentbuilds", "scanned")["status"]["builtImage"]
        name, _ = self.base("none")
        files = self.appending(name) | {f"{FOLDER}/site/{INSTALLED}": None}
        logs = self.refused(files, "scan-image-scan", 43, "a scan or a check is not whole", kept=before)
        self.assertIn("the image has no packages that the scanner knows", logs)

    def test_7_b3_b11_an_appended_image_is_scanned_with_its_base_before_it_is_pushed(self):
        """A base image with a package that the database knows is refused. With another one it is good."""
        before = stage.get("agentbuilds", "scanned")["status"]["builtImage"]
        name, digest = self.base("1.0.0")
        found = f"{INSTALLED}: {PACKAGE} 1.0.0 (PyPI) has {ADVISORY}"
        logs = self.refused(self.appending(name), "scan-image-check", 42, found, kept=before)
        self.assertIn(f"to {REGISTRY}/{name} ({digest})", logs)
        name, digest = self.base("2.0.0")
        commit = stage.push(self.appending(name))
        status = self.status_of(commit, "Succeeded")
        self.assertEqual(status["builtImage"].rpartition("@")[2], self.tagged(commit))
        self.assertNotEqual(status["builtImage"], before)
        self.assertEqual(status["baseDigest"], digest)
        names = [step["name"] for step in status["steps"]]
        scans = [f"scan-image-{part}" for part in ("export", "database", "scan", "check")]
        self.assertEqual(names[-7:], ["append-layout", "copy", *scans, "push"])

    def hostile(self, what):
        """The source and the AgentBuild of a build that is hostile, and how."""
        program = (Path(__file__).parent / "hostile_build.py").read_text()
        files = {f"{FOLDER}/Dockerfile": DOCKERFILE, f"{FOLDER}/hostile_build.py": program, f"{FOLDER}/what": what}
        return self.definition() | files

    def escape(self):
        """From now on the step that builds runs what is hostile itself: as root in its container, with all that is mounted there.

        No way out of the chroot of this buildah is known; others had one.
        """
        name = "convoke-step-build"
        task_spec = stage.get("configmaps", name, OPERATOR)["data"]["task-spec.yaml"]
        head, script, _ = task_spec.partition("    script: |\n")
        self.assertTrue(script)
        head = head.replace("image: $(params.buildah-image)", f"image: {stage.in_cluster('agent')}")
        # Whoever builds has to tell a base image.
        run = ': >"$RESULT_BASE_DIGEST"; cd "$SOURCE_DIR/repository/$SUBFOLDER" && exec python -B hostile_build.py "$(cat what)"'
        hostile = f"{head}{script}      #!/bin/sh\n      {run}\n"
        self.addCleanup(stage.api.merge, "configmaps", OPERATOR, name, {"data": {"task-spec.yaml": task_spec}})
        stage.api.merge("configmaps", OPERATOR, name, {"data": {"task-spec.yaml": hostile}})
        # What the operator has read of it counts for so long.
        time.sleep(21)

    def test_8_b3_b12_a_dockerfile_that_has_left_its_chroot_does_not_change_what_is_scanned_and_pushed(self):
        """It shows one image to those who scan and another one to those who push, and says another digest than the one that was pushed."""
        before = stage.get("agentbuilds", "scanned")["status"]["builtImage"]
        self.escape()
        found = f"{INSTALLED}: {PACKAGE} 1.0.0 (PyPI) has {ADVISORY}"
        logs = self.refused(self.hostile("exchange"), "scan-image-check", 42, found, kept=before)
        # It really did that, in this order.
        said = [line for line in logs.splitlines() if line.startswith(("this container has", "the image is", "copy has ended"))]
        has = "this container has ['source'] ['repository'] False"
        self.assertEqual(said[:4], [has, "the image is 1.0.0", "copy has ended", "the image is 2.0.0"], logs)
        commit = stage.push(self.hostile("forge"))
        status = self.status_of(commit, "Succeeded")
        self.assertEqual(status["builtImage"].rpartition("@")[2], self.tagged(commit))
        logs = self.logs(status["pipelineRun"])
        self.assertIn("push has ended", logs)
        self.assertIn(f"copied the image {self.tagged(commit)}, 1 layer", logs)

    def test_8_b3_an_image_is_tested_in_the_way_in_which_it_is_built(self):
        """The operator has a build profile: buildah is no root in either step."""
        stage.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
        self.addCleanup(WithoutBaseline.start_with, None)
        WithoutBaseline.start_with("rootless")
        files = {
            f"{FOLDER}/site/{INSTALLED}": METADATA.replace("1.0.0", "2.0.0"),
            f"{FOLDER}/Dockerfile": self.with_shell("EXPOSE 8081"),
        }
        commit = stage.push(files | self.definition("prod"))
        status = self.status_of(commit, "Succeeded")
        self.assertIn("the tests passed", self.logs(status["pipelineRun"]))
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={status['pipelineRun']}")
        users = {one["name"]: one["securityContext"].get("runAsUser") for one in pod["spec"]["containers"]}
        self.assertEqual((users["step-build"], users["step-test"]), (1000, 1000))

    def with_shell(self, more):
        """A Dockerfile of an image in which tests can run."""
        base = f"FROM {REGISTRY}/vulnerabilities:test\n"
        return base + DOCKERFILE.partition("\n")[2] + f"COPY site /usr/lib/python3/dist-packages\n{more}\n"

    def pulled(self, path, accept):
        """What the registry has for a path below the image, as JSON."""
        url = f"http://{stage.registry()}/v2/{NAMESPACE}/scanned/{path}"
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)
