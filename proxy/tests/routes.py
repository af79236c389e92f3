"""Prints all routes of LiteLLM's application, [method, path] each, as JSON: python -m tests.routes

Those that LiteLLM loads only when they are first asked for are in a list that comes with it.
"""

import json
import os
from pathlib import Path

from convoke_proxy import config

METHODS = frozenset(("get", "put", "post", "delete", "patch", "head", "options", "trace"))


def walk(routes, prefix=""):
    """(method, path) of routes, of mounted applications and of included routers."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from walk(included.routes, prefix + (getattr(route.include_context, "prefix", "") or ""))
            continue
        path = prefix + getattr(route, "path", "")
        for method in getattr(route, "methods", None) or ("GET", "POST"):
            yield method, path
        yield from walk(getattr(route, "routes", None) or (), path)


def all_routes():
    os.environ.update(config.SETTINGS)
    from litellm.proxy import proxy_server

    found = set(walk(proxy_server.app.routes))
    lazy = json.loads((Path(proxy_server.__file__).parent / "_lazy_openapi_snapshot.json").read_text())
    for feature in lazy.values():
        for path, item in feature["paths"].items():
            found |= {(method.upper(), path) for method in item if method in METHODS}
    return sorted(found)


if __name__ == "__main__":
    print(json.dumps(all_routes()))
