"""Which key is whose.

A key is `sk-cvk-<agent>.<uid>.<issued>.<mac>`. The MAC is HMAC-SHA256 over "<namespace>/<agent>/<uid>/<issued>" with
the signing key. Two mounted files decide: the signing key, and the list of agents. Both are read again when they
change.
"""

import dataclasses
import hashlib
import hmac
import json
import os
import re
import threading
import time

PREFIX = "sk-cvk-"
# Agent, uid, issued, MAC. A key that was made is far shorter than what the expression allows.
KEY = re.compile(
    r"sk-cvk-([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)\.([0-9A-Za-z-]{1,64})\.([1-9][0-9]{0,11})\.([0-9a-f]{64})"
)
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# So long a key is good that the list does not have yet: the list reaches the pod late.
UNLISTED_SECONDS = 600
LOOK_SECONDS = 1.0
MOST_BYTES = 4 << 20
LEAST_SIGNING_KEY = 32


class Invalid(Exception):
    """A file is not what it should be; says why, without its content."""


@dataclasses.dataclass(frozen=True)
class Caller:
    """Whose key it was."""

    agent: str


@dataclasses.dataclass(frozen=True)
class Agents:
    """What agents.json says."""

    namespace: str
    # Name: (uid, issued)
    issued: dict[str, tuple[tuple[str, int], ...]]


def parse_agents(data):
    """Agents of the bytes of agents.json; raises Invalid."""
    try:
        document = json.loads(data)
        namespace, entries = document["namespace"], document["agents"]
        if not isinstance(namespace, str) or not LABEL.fullmatch(namespace):
            raise Invalid("agents.json: namespace is no name")
        issued = {}
        for entry in entries:
            name, uid, when = entry["name"], entry["uid"], entry["issued"]
            if not isinstance(name, str) or not LABEL.fullmatch(name):
                raise Invalid("agents.json: an agent's name is no name")
            if not isinstance(uid, str) or not isinstance(when, int) or isinstance(when, bool):
                raise Invalid(f"agents.json: uid or issued of {name} has the wrong type")
            issued[name] = (*issued.get(name, ()), (uid, when))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Invalid(f"agents.json is not as expected: {type(error).__name__}") from None
    return Agents(namespace, issued)


def parse_signing_key(data):
    """The signing key of the bytes of its file; raises Invalid."""
    # A newline at the end is an editor's, not the key's.
    key = data.rstrip(b"\r\n")
    if len(key) < LEAST_SIGNING_KEY:
        raise Invalid(f"signing-key has less than {LEAST_SIGNING_KEY} bytes")
    return key


def read(path):
    """The bytes of a file; raises Invalid or OSError."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Invalid(f"{os.path.basename(path)} has more than {MOST_BYTES} bytes")
    return data


class File:
    """A file that is read again when it changed. A bad version of it changes nothing."""

    def __init__(self, path, parse, said):
        self.path = path
        self.parse = parse
        self.said = said
        self.value = None
        self.problem = "not read yet"
        self.mark = None

    def look(self):
        """Reads the file if it changed; tells whether the value is new."""
        try:
            status = os.stat(self.path)
            mark = (status.st_ino, status.st_size, status.st_mtime_ns)
            if mark == self.mark:
                return False
            value = self.parse(read(self.path))
        except (OSError, Invalid) as error:
            problem = str(error) if isinstance(error, Invalid) else f"{self.path}: {error.strerror}"
            if problem != self.problem:
                self.said(f"{problem}; what was read before stays" if self.value is not None else problem)
            self.problem = problem
            return False
        self.value, self.mark, self.problem = value, mark, None
        return True


class Keyring:
    """Checks keys. `changed` is called with the names of the listed agents whenever the list is new."""

    def __init__(self, signing_key_path, agents_path, said, changed=None, clock=time.time):
        self.signing_key = File(signing_key_path, parse_signing_key, said)
        self.agents = File(agents_path, parse_agents, said)
        self.changed = changed
        self.clock = clock
        self.lock = threading.Lock()
        self.looked = None
        self.look()

    def look(self):
        """Reads what changed, at most once in a while."""
        with self.lock:
            now = time.monotonic()
            if self.looked is not None and now - self.looked < LOOK_SECONDS:
                return
            self.looked = now
            self.signing_key.look()
            if self.agents.look() and self.changed:
                self.changed(frozenset(self.agents.value.issued))

    def problem(self):
        """Why no key can be checked, or None."""
        self.look()
        missing = [file.problem for file in (self.signing_key, self.agents) if file.value is None]
        return missing[0] if missing else None

    def caller(self, key):
        """Whose key this is, or None."""
        self.look()
        secret, agents = self.signing_key.value, self.agents.value
        found = KEY.fullmatch(key)
        if secret is None or agents is None or found is None:
            return None
        name, uid, issued, mac = found.groups()
        message = f"{agents.namespace}/{name}/{uid}/{issued}".encode()
        if not hmac.compare_digest(hmac.new(secret, message, hashlib.sha256).hexdigest(), mac):
            return None
        entries = agents.issued.get(name, ())
        if (uid, int(issued)) in entries and not any(when > int(issued) for _, when in entries):
            return Caller(name)
        if any(other != uid or when > int(issued) for other, when in entries):
            return None
        # A clock that is a little off is no reason to refuse a new key.
        if abs(self.clock() - int(issued)) > UNLISTED_SECONDS:
            return None
        return Caller(name)
