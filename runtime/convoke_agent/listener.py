"""Where a program of this image listens."""

import contextlib
import socket

BACKLOG = 1024


def listener(port):
    """A socket for all addresses, of IPv6 and IPv4 where there are both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)
