"""Sockets for all addresses, of IPv6 and IPv4 where there are both."""

import contextlib
import resource
import socket

# Of connections: those of callers, as many to providers, and those that are accepted before others are closed for them.
FILES = 8192


def files(said):
    """Lets this process open as many files as its bounds for connections need. Some container runtimes give 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < FILES:
        said(f"only {most} files may be open: when callers fill them, the kubelet's probes fail")


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
