"""Which server URLs a hosted page may be sent to. Knows addresses; knows no server and no dialect.

A name is resolved once per connection, every address it has is checked, and the connection goes to
a checked address: what a name server answers a moment later makes no difference (DNS rebinding).
Off by default: on a person's own machine a private address is the normal case.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import TypeAlias

import httpx

from dflash.engines.server_client import make_plain_transport, root_url
from dflash.errors import EngineError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], list[str]]

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_ALLOWED_LOW_PORTS = (80, 443)


def resolve(host: str, port: int) -> list[str]:
    """Every address of a name. Raises ``OSError``."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


class UrlGuard:
    """Refuses servers that are not on the public internet.

    With ``allowed`` (``host`` or ``host:port``, exactly as in the URL) only those are let through,
    private ones too: whoever runs the page has named them.
    """

    def __init__(self, allowed: Iterable[str] = (), *, resolver: Resolve = resolve) -> None:
        self._allowed = frozenset(name.strip().lower() for name in allowed)
        self._resolver = resolver

    def check(self, url: str) -> None:
        """Look at the URL alone. Raises ``EngineError`` with the reason."""
        self._checked_target(httpx.URL(root_url(url)))

    def make_transport(self) -> httpx.BaseTransport:
        """A transport that checks every address that it connects to."""
        return GuardedTransport(self, make_plain_transport())

    def addresses(self, url: httpx.URL) -> list[str]:
        """The addresses a connection may use now. Raises ``EngineError`` if any is forbidden."""
        host, port, is_allowed = self._checked_target(url)
        try:
            found = self._resolver(host, port)
        except OSError as error:
            raise EngineError(f"the name {host} has no address.", "Check the spelling.") from error
        if not found:
            raise EngineError(f"the name {host} has no address.", "Check the spelling.")
        for address in found:
            # A scope such as %eth0 is part of what getaddrinfo returns for link-local addresses.
            if not is_allowed and not is_public(ipaddress.ip_address(address.partition("%")[0])):
                raise _forbidden(host)
        return found

    def _checked_target(self, url: httpx.URL) -> tuple[str, int, bool]:
        host = url.host.lower().rstrip(".")
        port = url.port or (443 if url.scheme == "https" else 80)
        if url.scheme not in ("http", "https") or not host:
            raise EngineError("this is not a server's URL.", "Write https://host:port.")
        if self._allowed:
            if not self._allowed & {host, f"{host}:{port}"}:
                raise EngineError(
                    f"this page does not connect to {host}.",
                    f"It connects to {', '.join(sorted(self._allowed))} only.",
                )
            return host, port, True
        literal = _literal(host)
        if literal is not None and not is_public(literal):
            raise _forbidden(host)
        if literal is None and ("." not in host or host.endswith((".localhost", ".local"))):
            raise _forbidden(host)
        if port < 1024 and port not in _ALLOWED_LOW_PORTS:
            raise EngineError(f"port {port} is not that of a model server.", "Use 80, 443 or more.")
        return host, port, False


class GuardedTransport(httpx.BaseTransport):
    """Connects to the address that was checked, whatever the name means a moment later."""

    def __init__(self, guard: UrlGuard, inner: httpx.BaseTransport) -> None:
        self._guard, self._inner = guard, inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the first checked address; TLS still asks for the name's certificate."""
        address = self._guard.addresses(request.url)[0]
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # the Host header is set already and stays the name's
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )
        return self._inner.handle_request(pinned)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet, however it is wrapped into IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.teredo is not None:
            return False
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and any(address in network for network in _NAT64):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is None and int(address) >> 32 == 0:  # the old "compatible" form, ::a.b.c.d
            return False
        if inner is not None:
            return is_public(inner)
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


def _literal(host: str) -> Address | None:
    """The address a host spells out; ``None`` for a name. Raises ``EngineError`` for a number that
    only some readers take for an address (decimal, octal, hexadecimal, shortened)."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    last = host.rsplit(".", 1)[-1]
    # WHATWG URL: a host whose last label is a number is an IPv4 address, or no host at all.
    if last.isdigit() or (last.startswith("0x") and all(c in "0123456789abcdef" for c in last[2:])):
        raise EngineError(
            f"{host} is not a clear address.", "Write four decimal numbers, or a name."
        )
    return None


def _forbidden(host: str) -> EngineError:
    return EngineError(
        f"{host} is not on the public internet, and this page connects to nothing else.",
        "Run the playground on your own machine to use servers there.",
    )
