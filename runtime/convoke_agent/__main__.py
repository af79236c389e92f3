"""Serves on port 8000 ($PORT) until SIGTERM. docs/agent-runtime.md says what."""

import asyncio
import contextlib
import os
import signal
import sys

import uvicorn

from . import logs
from .front import Front
from .listener import listener

DEFAULT_PORT = 8000
# After SIGTERM, within the pod's grace period of 30 seconds: what runs may end, then it is cancelled, which may take
# 2 seconds; answers are written; the rest is closed.
STOP_SECONDS = 25
FLUSH_SECONDS = 1
CLOSE_SECONDS = 1


class Server(uvicorn.Server):
    """The server, with signals handled below."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


async def serve(environment):
    """Serves until a signal comes, then ends in order."""
    front = Front(environment)
    sock = listener(int(environment.get("PORT") or DEFAULT_PORT))
    config = uvicorn.Config(front, lifespan="off", log_config=None, access_log=False, server_header=False, ws="none")
    config.timeout_graceful_shutdown = FLUSH_SECONDS
    # It imports: before the other thread does.
    config.load()
    server = Server(config)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    loading = front.load()
    # An agent that cannot load ends, with the reason.
    loading.add_done_callback(lambda _: stop.set() if not loading.cancelled() and loading.exception() else None)
    logs.say("listening", port=sock.getsockname()[1])
    await asyncio.wait({serving, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    # The socket stays open meanwhile: who asks is told that the agent stops, and tasks that run can be asked for.
    await front.drain(STOP_SECONDS)
    server.should_exit = True
    await serving
    await front.close(CLOSE_SECONDS)
    if loading.done() and not loading.cancelled():
        loading.result()


def main():
    # The spans of this library quote errors, and errors quote requests.
    os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] = "false"
    environment = dict(os.environ)
    logs.start(plain=environment.get("AGENT_LOG_FORMAT") == "plain")
    try:
        asyncio.run(serve(environment))
    except OSError as error:
        return f"error: cannot listen: {error}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
