"""A hosted page reaches servers on the public internet and nothing else."""

from __future__ import annotations

import ipaddress
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash.engines import open_engine
from dflash.engines.url_guard import GuardedTransport, UrlGuard, is_public
from dflash.errors import EngineError

PUBLIC = "93.184.215.14"


def guard(*addresses: str, allowed: tuple[str, ...] = ()) -> UrlGuard:
    return UrlGuard(allowed, resolver=lambda host, port: list(addresses))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "127.8.9.10", "0.0.0.0", "0", "10.0.0.8", "172.16.3.4", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.7",
        "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.01",
        "127.0.0.1.", "１２７.0.0.1", "169.254.43518",
        "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]",
        "[::127.0.0.1]", "[fe80::1]", "[fc00::1]", "[fd12:3456::1]", "[ff02::1]", "[2001:db8::1]",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
        "localhost", "LOCALHOST", "a.localhost", "printer.local", "intranet", "metadata",
    ],
)  # fmt: skip
def test_private_hosts_are_refused_however_they_are_written(host: str):
    with pytest.raises(EngineError):
        guard(PUBLIC).check(f"http://{host}:8000")


@pytest.mark.parametrize(
    "url",
    ["https://api.example.com", "https://api.example.com/v1", "http://93.184.215.14:8000", "https://[2606:4700::1111]", "https://example.com:443"],
)  # fmt: skip
def test_public_servers_are_let_through(url: str):
    guard(PUBLIC).check(url)


def test_a_name_is_judged_by_every_address_it_has():
    url = httpx.URL("https://api.example.com")
    assert guard(PUBLIC).addresses(url) == [PUBLIC]
    for bad in (
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
    ):
        with pytest.raises(EngineError, match="public internet"):
            guard(PUBLIC, bad).addresses(url)
    with pytest.raises(EngineError, match="no address"):
        guard().addresses(url)


def test_a_name_without_an_address_is_one_sentence():
    def unknown(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    with pytest.raises(EngineError, match="has no address"):
        UrlGuard(resolver=unknown).addresses(httpx.URL("https://nowhere.example"))


def test_the_connection_goes_to_the_checked_address_under_the_servers_own_name():
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return [PUBLIC] if len(asked) == 1 else ["127.0.0.1"]

    transport = GuardedTransport(UrlGuard(resolver=rebinding), httpx.MockTransport(answer))
    with httpx.Client(transport=transport) as client:
        client.get("https://api.example.com:8443/v1/models")
        assert seen[0].url.host == PUBLIC and seen[0].url.port == 8443
        assert seen[0].headers["host"] == "api.example.com:8443"
        assert seen[0].extensions["sni_hostname"] == "api.example.com"
        with pytest.raises(EngineError, match="public internet"):  # the name moved to loopback
            client.get("https://api.example.com:8443/v1/models")
    assert len(seen) == 1


def test_an_allow_list_is_the_whole_list_and_may_name_private_servers():
    listed = UrlGuard(("10.0.0.5:8000", "api.example.com"))
    listed.check("http://10.0.0.5:8000")
    listed.check("https://api.example.com")
    for other in ("http://10.0.0.5:9000", "https://evil.example.com", "http://10.0.0.6:8000"):
        with pytest.raises(EngineError, match="does not connect"):
            listed.check(other)


def test_low_ports_that_serve_no_models_are_refused():
    for port in (22, 25, 993):
        with pytest.raises(EngineError, match=f"port {port}"):
            guard(PUBLIC).check(f"http://example.com:{port}")


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_in_every_ipv6_wrapping(address: ipaddress.IPv4Address):
    number = int(address)
    wrapped = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
    ]
    assert {is_public(w) for w in wrapped} == {is_public(address)}


class Listing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/v1/models"
        body = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(body if found else b"{}")

    def log_message(self, *args: object) -> None:
        """Quiet."""


def test_an_engine_behind_the_guard_reaches_a_listed_server_and_no_other():
    with HTTPServer(("127.0.0.1", 0), Listing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            listed = UrlGuard((f"127.0.0.1:{server.server_port}",))
            assert open_engine("vllm", base_url=url, guard=listed).info.target_id == "tiny"
            with pytest.raises(EngineError, match="public internet"):
                open_engine("vllm", base_url=url, guard=UrlGuard())
            with pytest.raises(EngineError, match="public internet"):  # by name, at connect time
                open_engine(
                    "vllm",
                    base_url=f"http://public.example:{server.server_port}",
                    guard=guard("127.0.0.1"),
                )
        finally:
            server.shutdown()
