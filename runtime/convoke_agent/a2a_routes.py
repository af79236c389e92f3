"""A2A over JSON-RPC, versions 1.0 and 0.3, by the protocol's library."""

from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

from .a2a_handler import Handler

STREAM_GRACE_SECONDS = 20


def dispatcher(service):
    """What answers the requests at `/`."""
    return JsonRpcDispatcher(Handler(service), enable_v0_3_compat=True, shutdown_grace_period=STREAM_GRACE_SECONDS)
