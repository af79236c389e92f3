"""The agent as its interfaces see it: admits questions, thinks about them, keeps conversations."""

import asyncio
import contextlib
import importlib
import math
import time

from . import history, limits, logs, loop, peers
from .errors import Failure, stopping
from .memory import Local
from .settings import FILE_VARIABLES, BadSettings, read_files, settings_of, values_of
from .tool_servers import Connection, ToolServer

POLL_SECONDS = 1
MEMORY_LOOK_SECONDS = 5
NOT_REACHED_YET = "Redis, the agent's memory, has not answered yet"
# How long what is cancelled at the end may take to say so.
KEEP_SECONDS = 2
# How long another configuration waits for the tools of servers that are new in it.
NEW_SERVERS_SECONDS = 30


def _number(environment, name, default, kind=float):
    """A number above 0, a whole one if `kind` is int. Raises BadSettings."""
    try:
        value = kind(environment.get(name) or default)
    except ValueError:
        value = 0
    if not 0 < value < math.inf:
        whole = "whole " if kind is int else ""
        raise BadSettings([f"{name}: it must be a {whole}number above 0"])
    return value


def _key_of(server):
    """What a connection to a tool server depends on."""
    return server.name, server.url, tuple((header.name, header.env) for header in server.headers)


class Service:
    """One agent."""

    def __init__(self, environment):
        self.environment = environment
        self.problem = None
        self.reload_problem = None
        self.memory_problem = None
        self.snapshot = None
        self.memory = None
        # A client that sends slowly takes no room from questions.
        self.reading = limits.Room(limits.MAX_READING_BYTES)
        self.room = limits.Room(limits.MAX_REQUESTS_BYTES)
        self.gate = None
        self.pending_seconds = 0
        self.stopping = False
        # What must end before the process does, and how each is cancelled.
        self.running = {}
        # By name, URL and headers.
        self._connections = {}
        self._peers = {}
        self._were_listed = False
        self._files = None
        self._tool_seconds = 0
        self._capabilities = []
        self._model_http = loop.model_http()
        self._peer_http = peers.client()
        self._tasks = []

    async def start(self):
        """Reads the settings and begins to connect. Bad settings are told by `state`, not raised."""
        try:
            self._files = read_files(self.environment)
            await self._begin(settings_of(self._files, self.environment))
        except (BadSettings, OSError) as error:
            self.problem = str(error)
            logs.warn("the configuration is bad", error=self.problem)
        # A file that is bad or missing may become good, and nobody knows yet whether it says Hot.
        named = any(self.environment.get(variable) for variable in FILE_VARIABLES)
        if (self.snapshot is None and named) or (self.snapshot is not None and self._hot()):
            self._tasks.append(asyncio.create_task(self._watch_files()))

    def _hot(self):
        return self.snapshot.settings.reload == "Hot"

    async def _begin(self, settings):
        """Makes what the first settings that are good say. Raises BadSettings."""
        running = _number(self.environment, "AGENT_MAX_RUNNING", 100, int)
        waiting = _number(self.environment, "AGENT_MAX_WAITING", 400, int)
        self.gate = limits.Gate(running, waiting, self.room)
        self._tool_seconds = _number(self.environment, "AGENT_TOOL_TIMEOUT_SECONDS", 60)
        self.pending_seconds = _number(self.environment, "AGENT_APPROVAL_SECONDS", 600)
        self._start_memory(settings)
        self._start_telemetry(settings)
        connections = self._connected(settings)
        try:
            self._take(settings, connections)
        except BaseException:
            await asyncio.gather(*(one.close() for one in connections.values()))
            raise
        if self.memory.shared:
            # Nobody knows yet whether it is there.
            self.memory_problem = NOT_REACHED_YET
            self._tasks.append(asyncio.create_task(self._watch_memory()))

    def _start_memory(self, settings):
        if not settings.memory.enabled or settings.memory.type == "Local":
            self.memory = Local(settings.memory, self.pending_seconds)
            return
        shared = importlib.import_module("convoke_agent.shared_memory")
        name = ":".join(filter(None, (self.environment.get("AGENT_NAMESPACE"), settings.name)))
        try:
            self.memory = shared.Shared(
                settings.memory, self.pending_seconds, self.environment["MEMORY_REDIS_URL"], name
            )
        except ValueError:
            raise BadSettings(["MEMORY_REDIS_URL: it is not a URL of Redis"]) from None

    def _start_telemetry(self, settings):
        if settings.telemetry.enabled:
            telemetry = importlib.import_module("convoke_agent.telemetry")
            self._capabilities = telemetry.start(settings, self.environment)

    def _connected(self, settings):
        """Connections for all tool servers in these settings, by their keys. Those of today are taken over."""
        found = {}
        for one in settings.mcp_servers if settings.agentic_loop.enable_tools else ():
            key = _key_of(one)
            there = self._connections.get(key) or found.get(key)
            found[key] = there or Connection(one, values_of(one.headers, self.environment))
        return found

    def _take(self, settings, connections):
        """Makes these settings the ones of the next request."""
        peers_ = {}
        for one in settings.peers:
            there = self._peers.get(one.name)
            peers_[one.name] = (
                there if there is not None and there.settings == one else peers.Peer(one, self._peer_http)
            )
        servers = {
            one.name: ToolServer(one, connections[_key_of(one)])
            for one in settings.mcp_servers
            if _key_of(one) in connections
        }
        snapshot = loop.Snapshot(
            settings, self.environment, list(servers.values()), list(peers_.values()), self._tool_seconds
        )
        snapshot.build(self._model_http, self._capabilities)
        gone = [one for key, one in self._connections.items() if key not in connections]
        self._connections, self._peers, self.snapshot = connections, peers_, snapshot
        self.memory.settings = settings.memory
        if gone:
            self._tasks.append(asyncio.create_task(self._close_later(gone)))
        for peer in peers_.values():
            asyncio.get_running_loop().create_task(peer.look())

    async def _change(self, settings):
        """Takes other settings, once the servers that are new in them listed their tools or had time enough."""
        connections = self._connected(settings)
        new = [one for key, one in connections.items() if key not in self._connections]
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NEW_SERVERS_SECONDS):
                    await asyncio.gather(*(one.listed.wait() for one in new))
            if late := [one.name for one in new if not one.listed.is_set()]:
                logs.warn("tool servers did not list their tools in time; the agent goes on without", servers=late)
            # What is ready stays it, whatever comes.
            self.state()
            self._take(settings, connections)
        except BaseException:
            await asyncio.gather(*(one.close() for one in new))
            raise

    async def _close_later(self, connections):
        """Closes connections once no request of today uses them."""
        if self.running:
            await asyncio.wait(set(self.running))
        await asyncio.gather(*(one.close() for one in connections))

    async def _watch_files(self):
        while self.snapshot is None or self._hot():
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._look_at_files()
            except (BadSettings, OSError) as error:
                self._bad_again(str(error))
            except Exception as error:
                logs.bug(error)
                self._bad_again("it cannot be taken")

    async def _look_at_files(self):
        files = await asyncio.to_thread(read_files, self.environment)
        # The two files change together: only what was read twice alike is one version.
        if files == self._files or await asyncio.to_thread(read_files, self.environment) != files:
            return
        self._files = files
        settings = settings_of(files, self.environment)
        if self.snapshot is None:
            await self._begin(settings)
        else:
            await self._change(settings)
        self.problem = self.reload_problem = None
        logs.say("the configuration was loaded", hash=settings.hash, commit=settings.commit)

    def _bad_again(self, problem):
        """Tells of a configuration that is not taken: the old one stays, if there is one."""
        if self.snapshot is None:
            self.problem = problem
        elif self.reload_problem != problem:
            logs.warn("the new configuration is bad, the old one is kept", error=problem)
            self.reload_problem = problem

    async def _watch_memory(self):
        failed = 0
        while True:
            try:
                await self.memory.ping()
                self.memory_problem, failed = None, 0
            except Failure as error:
                failed += 1
                # One that was there a moment ago may be there again: one failure makes no replica unready.
                if failed > 1:
                    self.memory_problem = error.message
            await asyncio.sleep(POLL_SECONDS if failed or self.memory_problem else MEMORY_LOOK_SECONDS)

    def state(self):
        """Why no requests are taken; None when they are."""
        if self.stopping:
            return "the agent stops"
        if self.problem is not None:
            return self.problem
        if self.memory_problem is not None:
            return self.memory_problem
        # Once they were listed, a server that is away, or new, does not make the agent unready.
        for server in () if self._were_listed else self.snapshot.servers:
            if server.tools is None:
                return f"the tools of the server {server.name} were not listed yet: {server.problem or 'no answer'}"
        self._were_listed = True
        return None

    def ready_body(self):
        reason = self.state()
        body = {"status": "ok" if reason is None else "not ready", "reason": reason}
        if self.snapshot is not None:
            body |= {"hash": self.snapshot.settings.hash, "commit": self.snapshot.settings.commit}
            # A configuration that was read again goes on without them.
            if missing := [one.name for one in self.snapshot.servers if one.tools is None]:
                body["missing"] = missing
        if self.reload_problem is not None:
            body["configurationProblem"] = self.reload_problem
        return body

    def admit(self, body):
        """Lets a body's question in, which takes its room over, or raises Failure. The gate is left with its size."""
        if self.stopping:
            raise stopping()
        if self.snapshot is None:
            raise Failure("not_ready", self.problem or "the agent starts")
        body.let_go()
        self.gate.enter(body.size)
        return self.snapshot

    def began(self, task, cancel=None):
        """Remembers a task that must end before the process does, and how it is cancelled if it takes too long."""
        self.running[task] = cancel or task.cancel
        task.add_done_callback(self.running.pop)

    @contextlib.asynccontextmanager
    async def holding(self, run):
        """Waits for a place to run and for the run's session. Gives the conversation so far."""
        memory = run.snapshot.settings.memory
        try:
            async with asyncio.timeout(run.remaining()), contextlib.AsyncExitStack() as stack:
                if run.session and memory.enabled:
                    await stack.enter_async_context(self.memory.session(run.session, run.remaining()))
                await stack.enter_async_context(self.gate.place())
                messages = await self.memory.messages(run.session) if run.session and memory.enabled else []
                held = stack.pop_all()
        except TimeoutError:
            raise Failure("seconds_exceeded", "the question waited too long for its turn") from None
        async with held:
            yield history.newest(messages, memory.context_limit)

    async def remember(self, run, turn):
        """Adds an answered question to its conversation."""
        if run.session and run.snapshot.settings.memory.enabled:
            await self.memory.append(run.session, turn)

    async def drain(self, seconds):
        """Takes no more questions, lets those that run end within these seconds, and cancels the rest."""
        self.stopping = True
        if not self.running:
            return
        _, late = await asyncio.wait(set(self.running), timeout=seconds)
        for task in late:
            self.running[task]()
        # Those may leave something to keep.
        until = time.monotonic() + KEEP_SECONDS
        while self.running and time.monotonic() < until:
            await asyncio.wait(set(self.running), timeout=until - time.monotonic())

    async def close(self):
        """Closes everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(
            *self._tasks, *(one.close() for one in self._connections.values()), return_exceptions=True
        )
        if self.memory is not None:
            await self.memory.close()
        await asyncio.gather(self._model_http.aclose(), self._peer_http.aclose())
        if self._capabilities:
            await importlib.import_module("convoke_agent.telemetry").stop()
