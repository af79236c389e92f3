"""Brings what etcd holds back to an earlier moment, while the API server that uses it runs.

A control plane takes eight seconds of processor time to start, and a reset of one takes none worth the name. The API server learns of
each change by its watches, as if somebody had made it by requests: no finalizer holds anything up and no garbage collector is needed.

Speaks etcd's JSON gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/) on its socket. Standard library only.
"""

import base64
import http.client
import json
import os
import socket

# What the API server keeps for itself, and events, which end by themselves: an older value of these would be wrong. Numbers of ports
# of nodes are handed out from memory.
KEPT = ("/registry/masterleases/", "/registry/leases/", "/registry/ranges/", "/registry/peerserverleases/")
GONE = ("/registry/events/",)
# etcd takes at most 128 operations in one transaction.
TRANSACTION = 100


class Connection(http.client.HTTPConnection):
    """HTTP on a Unix socket. A path in `folder`, because a socket's path is at most 107 bytes."""

    def __init__(self, folder, name):
        super().__init__("localhost", timeout=30)
        self.folder = folder
        self.name = name

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self.name}")
        finally:
            os.close(folder)


def text(value):
    return base64.b64encode(value.encode()).decode()


class Etcd:
    """The etcd of the control plane in a state folder."""

    def __init__(self, state):
        self.connection = Connection(state, "etcd.sock:0")

    def ask(self, path, question):
        self.connection.request("POST", f"/v3/kv/{path}", json.dumps(question))
        reply = self.connection.getresponse()
        answer = reply.read()
        if reply.status != 200:
            raise OSError(f"etcd answers {reply.status}: {answer[:500]!r}")
        return json.loads(answer)

    def entries(self, keys_only):
        """What it holds: the key to the revision of its last change and, unless `keys_only`, its value (both in Base64)."""
        answer = self.ask("range", {"key": text("/registry/"), "range_end": text("/registry0"), "keys_only": keys_only})
        entries = {entry["key"]: (entry["mod_revision"], entry.get("value", "")) for entry in answer.get("kvs", [])}
        return {key: entry for key, entry in entries.items() if not base64.b64decode(key).decode().startswith(KEPT)}

    def snapshot(self):
        """What `reset` brings back."""
        return self.entries(keys_only=False)

    def reset(self, before):
        """Deletes what was added since then, and puts back what was changed or deleted. Events are only deleted."""
        now = self.entries(keys_only=True)
        changes = [{"requestDeleteRange": {"key": key}} for key in now if key not in before]
        for key, (revision, value) in before.items():
            if now.get(key, ("",))[0] != revision and not base64.b64decode(key).decode().startswith(GONE):
                changes.append({"requestPut": {"key": key, "value": value}})
        for begin in range(0, len(changes), TRANSACTION):
            self.ask("txn", {"success": changes[begin : begin + TRANSACTION]})
