"""Sockets for all addresses, of IPv6 and IPv4 where there are both."""

import contextlib
import socket


def bound(host, port):
    """A socket that has its port and does not listen yet; raises OSError. Without a host it is for all addresses."""
    if host is not None:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return made(family, address)
    if socket.has_dualstack_ipv6():
        # A machine may know IPv6 and have it switched off.
        with contextlib.suppress(OSError):
            return made(socket.AF_INET6, ("::", port))
    return made(socket.AF_INET, ("", port))


def made(family, address):
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
