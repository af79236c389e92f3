"""Starts the model proxy: python -m convoke_proxy --config /etc/litellm/config.yaml [--port 8000]"""

import argparse
import json
import os
import sys
import tempfile

from . import config, listen, log, metrics, provider

KEYS = "/etc/convoke/proxy"
AGENTS = "/etc/convoke/agents"
# Longer than LiteLLM waits for its requests to end.
GRACE_SECONDS = 25


def options(arguments):
    parser = argparse.ArgumentParser(prog="convoke_proxy", allow_abbrev=False)
    parser.add_argument("--config", required=True, help="LiteLLM's configuration")
    parser.add_argument("--host", help="one address to listen on, not all of this machine's")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--metrics-port", type=int, default=9000)
    parser.add_argument("--keys", default=KEYS, help="the folder with master-key and signing-key")
    parser.add_argument("--agents", default=AGENTS, help="the folder with agents.json")
    return parser.parse_args(arguments)


def provider_of(made, outcomes, said):
    """Asks the provider of the first model of the list."""
    import litellm

    first = made["model_list"][0]
    parameters = {name: config.resolved(value, os.environ) for name, value in first["litellm_params"].items()}
    find = lambda: provider.question(parameters, litellm.get_llm_provider)
    return provider.Provider(find, outcomes, said)


def application(made, chosen, counters, outcomes, writer):
    """The gate, with LiteLLM behind it. Its environment must be there: LiteLLM reads it when it is imported."""
    from litellm.proxy.proxy_server import app
    from litellm.types.utils import is_litellm_owned_kwarg

    from . import gate, keys, litellm_hooks, models

    litellm_hooks.usage.counters = counters
    keyring = keys.Keyring(
        os.path.join(chosen.keys, "signing-key"),
        os.path.join(chosen.agents, "agents.json"),
        writer.said,
        counters.agents_changed,
    )
    fields = config.owner_fields(os.environ, is_litellm_owned_kwarg)
    return gate.Gate(app, keyring, models.Models(config.model_names(made)), counters, outcomes, writer.said, fields)


def serve(served, sock, chosen, writer):
    """Serves on a bound socket until SIGTERM; gives the exit code."""
    import uvicorn

    from .server import Protocol

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            if self.started:
                writer.said(f"serves on port {chosen.port}, metrics on port {chosen.metrics_port}")
                log.install(writer)
                writer.begin_quiet()

    settings = uvicorn.Config(
        served,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = Server(settings)
    server.run(sockets=[sock])
    return 0 if server.started else 1


def main():
    chosen = options(sys.argv[1:])
    writer = log.Log(sys.stderr)
    log.install(writer)
    listen.files(writer.said)
    try:
        made = config.litellm_config(config.read(chosen.config), writer.said)
        config.check_keys(made, os.environ)
        key = config.master_key(os.path.join(chosen.keys, "master-key"))
        path = config.write(made, tempfile.mkdtemp(prefix="litellm-"))
        environment = config.environment(os.environ, key, path)
        os.environ.clear()
        os.environ.update(environment)
        counters, outcomes = metrics.Counters(), provider.Outcomes()
        served = application(made, chosen, counters, outcomes, writer)
    except config.Invalid as error:
        writer.said(f"cannot start: {error}")
        return 2
    asked = provider_of(made, outcomes, writer.said)
    pages = {
        "/metrics": lambda: (200, "text/plain; version=0.0.4", counters.text()),
        "/provider": lambda: (200, "application/json", json.dumps(asked.state()) + "\n"),
    }
    try:
        sock = listen.bound(chosen.host, chosen.port)
        metrics.listener(listen.bound(chosen.host, chosen.metrics_port), pages)
    except OSError as error:
        writer.said(f"cannot listen: {error.strerror}")
        return 1
    log.install(writer)
    return serve(served, sock, chosen, writer)


if __name__ == "__main__":
    sys.exit(main())
