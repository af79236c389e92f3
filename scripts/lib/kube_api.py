"""Requests to an API server for tests that ask often: without a process for each. Standard library only."""

import base64
import http.client
import json
import ssl
import threading
import urllib.parse

OURS = "/apis/convoke.dev/v1alpha1"
APPS = "/apis/apps/v1"
CORE = "/api/v1"
TEKTON = "/apis/tekton.dev/v1"
# Where each kind is.
PLACES = {
    "agents": OURS,
    "mcpservers": OURS,
    "modelapis": OURS,
    "gitsyncs": OURS,
    "agentbuilds": OURS,
    "deployments": APPS,
    "replicasets": APPS,
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "resourcequotas": CORE,
    "services": CORE,
    "configmaps": CORE,
    "secrets": CORE,
    "pods": CORE,
    "endpoints": CORE,
    "pipelineruns": TEKTON,
    "taskruns": TEKTON,
}
SECONDS = 60


class Refused(AssertionError):
    """The API server answers with an error. `code` is that of HTTP."""

    def __init__(self, code, text):
        super().__init__(f"HTTP {code}: {text[:600]}")
        self.code = code
        self.text = text


class Api:
    """An API server, as the user of a kubeconfig (as JSON: `kubectl config view --raw --minify --flatten -o json`)."""

    def __init__(self, config):
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = urllib.parse.urlsplit(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        self.token = user["token"]
        self.local = threading.local()

    def connection(self, anew=False):
        """The connection of this thread."""
        if anew or not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(
                self.server.hostname, self.server.port, context=self.tls, timeout=SECONDS
            )
        return self.local.connection

    def request(self, method, path, body=None, kind="application/json"):
        """The text of an answer. Raises Refused."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind, "Accept": "application/json", "Authorization": f"Bearer {self.token}"}
        for anew in (False, True):
            connection = self.connection(anew)
            try:
                connection.request(method, path, data, headers)
                reply = connection.getresponse()
                text = reply.read().decode(errors="replace")
                break
            except (http.client.HTTPException, OSError):
                connection.close()
                if anew:
                    raise
        if reply.status >= 300:
            raise Refused(reply.status, text)
        return text

    def lines(self, path, seconds):
        """The lines of an answer as they come, such as a watch's. Raises Refused."""
        connection = http.client.HTTPSConnection(
            self.server.hostname, self.server.port, context=self.tls, timeout=seconds
        )
        try:
            headers = {"Accept": "application/json", "Authorization": f"Bearer {self.token}"}
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            if reply.status >= 300:
                raise Refused(reply.status, reply.read().decode(errors="replace"))
            yield from iter(reply.readline, b"")
        finally:
            connection.close()

    def path(self, kind, namespace, name=""):
        """Where an object is, or a list of them."""
        path = f"{PLACES[kind]}/namespaces/{namespace}/{kind}"
        return f"{path}/{name}" if name else path

    def get(self, kind, namespace, name):
        """An object; None when it is not there."""
        try:
            return json.loads(self.request("GET", self.path(kind, namespace, name)))
        except Refused as refused:
            if refused.code == 404:
                return None
            raise

    def list(self, kind, namespace, labels=""):
        """Objects, those with these labels."""
        query = f"?labelSelector={urllib.parse.quote(labels)}" if labels else ""
        return json.loads(self.request("GET", self.path(kind, namespace) + query))["items"]

    def create(self, kind, namespace, value, dry_run=False):
        path = self.path(kind, namespace)
        return json.loads(self.request("POST", f"{path}?dryRun=All" if dry_run else path, value))

    def merge(self, kind, namespace, name, patch):
        """Changes an object by a merge patch."""
        path = self.path(kind, namespace, name)
        return json.loads(self.request("PATCH", path, patch, "application/merge-patch+json"))

    def patch(self, kind, namespace, name, *operations):
        """Changes an object by operations of a JSON patch."""
        path = self.path(kind, namespace, name)
        return json.loads(self.request("PATCH", path, list(operations), "application/json-patch+json"))

    def delete(self, kind, namespace, name, now=False):
        """Deletes an object, if it is there; with `now` a pod gets no time."""
        options = {"gracePeriodSeconds": 0} if now else {}
        try:
            self.request("DELETE", self.path(kind, namespace, name), options)
        except Refused as refused:
            if refused.code != 404:
                raise

    def through(self, kind, namespace, name, port, path="/", body=None, method=None):
        """What a pod or a Service (`kind`) answers on a port, through the API server's proxy."""
        method = method or ("GET" if body is None else "POST")
        return self.request(method, f"{self.path(kind, namespace, f'{name}:{port}')}/proxy{path}", body)
