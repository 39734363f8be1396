"""Metadata by etcd: through a client for tests, and through the real one where it and a server are installed."""

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import types
import urllib.request

import pytest
from conftest import Memory, finish, new_agent, until

from warpverbs.nixl import _bindings

PLACE = {"host": "127.0.0.1", "port": 2379, "protocol": "http"}


class Refused(Exception):
    """As the client's: the cause is not in the text."""

    def __init__(self, why):
        super().__init__()
        self.detail_text = why


class Server:
    """A stand-in for the client `etcd3gw`, over a dict. Clients of ports in `down` fail."""

    def __init__(self):
        self.values, self.made, self.down, self.lock = {}, [], set(), threading.Lock()

    def client(self, host="localhost", port=2379, protocol="http"):
        self.made.append({"host": host, "port": port, "protocol": protocol})
        server = self

        class Client:
            timeout = None

            def put(self, key, value):
                assert isinstance(value, bytes) and 0 < self.timeout <= 5
                with server.lock:
                    if port in server.down:
                        raise Refused("nobody is there")
                    server.values[key] = value
                return True

            def get(self, key):
                with server.lock:
                    if port in server.down:
                        raise Refused("nobody is there")
                    return [server.values[key]] if key in server.values else []

        return Client()


@pytest.fixture
def etcd(monkeypatch):
    server = Server()
    module = types.ModuleType("etcd3gw")
    module.client = server.client
    monkeypatch.setitem(sys.modules, "etcd3gw", module)
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", "http://127.0.0.1:2379")
    monkeypatch.delenv("NIXL_ETCD_NAMESPACE", raising=False)
    monkeypatch.delenv("NIXL_TCPSTORE_ENDPOINT", raising=False)
    return server


def exchanged(rng):
    """Two agents, of which the first gets the second's metadata, whole and in part, and reads its memory."""
    a, b = new_agent(), new_agent()
    here, first, second = (Memory(rng.randbytes(4096)) for _ in range(3))
    regs = [a.register_memory([here.reg()], "DRAM")]
    regs += [b.register_memory([each.reg()], "DRAM") for each in (first, second)]
    # Before it is there, and a part before the whole.
    a.fetch_remote_metadata(b.name, label="second")
    b.send_partial_agent_metadata(regs[2], False, ["UCX"], label="second")
    until("a part", lambda: a.check_remote_metadata(b.name, regs[2].trim()))
    assert not a.check_remote_metadata(b.name, regs[1].trim())
    b.send_local_metadata()
    a.fetch_remote_metadata(b.name)
    until("all", lambda: a.check_remote_metadata(b.name, regs[1].trim()))
    handle = a.initialize_xfer("READ", regs[0].trim(), regs[1].trim(), b.name)
    finish(a, handle)
    assert here.bytes() == first.bytes()
    a.release_xfer_handle(handle)
    # A peer that looks again forgets it, once the news is there.
    b.invalidate_local_metadata()

    def forgotten():
        a.fetch_remote_metadata(b.name)
        time.sleep(0.1)
        return not a.check_remote_metadata(b.name)

    until("the end", forgotten)
    a.deregister_memory(regs[0])
    [b.deregister_memory(each) for each in regs[1:]]
    return b.name


def test_metadata_travel_by_etcd(etcd, rng):
    name = exchanged(rng)
    assert set(etcd.values) == {f"/nixl/agents/{name}/metadata", f"/nixl/agents/{name}/second"}
    assert etcd.made and all(each == PLACE for each in etcd.made)


def test_keys_are_of_a_namespace(etcd, rng, monkeypatch):
    monkeypatch.setenv("NIXL_ETCD_NAMESPACE", "/job/7/")
    name = exchanged(rng)
    assert set(etcd.values) == {f"/job/7/{name}/metadata", f"/job/7/{name}/second"}


def test_an_endpoint_that_fails_leaves_it_to_the_next(etcd, rng, monkeypatch):
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", "https://[::1]:1, localhost:2")
    etcd.down.add(1)
    exchanged(rng)
    assert {"host": "::1", "port": 1, "protocol": "https"} in etcd.made
    assert {"host": "localhost", "port": 2, "protocol": "http"} in etcd.made


def test_a_failure_is_logged_with_its_cause(etcd, caplog):
    etcd.down.add(2379)
    agent = new_agent()
    with caplog.at_level(logging.WARNING, logger="warpverbs"):
        agent.send_local_metadata()
        until("a warning", lambda: "nobody is there" in caplog.text)
    assert "http://127.0.0.1:2379: Refused: nobody is there" in caplog.text


def test_a_client_that_is_not_installed_is_named(etcd, monkeypatch):
    monkeypatch.setitem(sys.modules, "etcd3gw", None)
    # The variable alone asks for nothing.
    agent = new_agent()
    for call in (
        agent.send_local_metadata,
        agent.invalidate_local_metadata,
        lambda: agent.fetch_remote_metadata("other"),
    ):
        with pytest.raises(_bindings.nixlNotSupportedError, match="pip install etcd3gw") as caught:
            call()
        assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    # Metadata by an address do without it.
    agent.fetch_remote_metadata("other", "127.0.0.1", 1)


@pytest.mark.parametrize("wrong", ["none", "http://", "ftp://host:1", "http://host:x", "http://host:1,,"])
def test_wrong_endpoints_are_refused(etcd, monkeypatch, wrong):
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", wrong)
    agent = new_agent()
    with pytest.raises(_bindings.nixlInvalidParamError, match="expected http://HOST:PORT"):
        agent.send_local_metadata()
    assert not etcd.made


def test_two_stores_are_one_too_many(etcd, monkeypatch):
    monkeypatch.setenv("NIXL_TCPSTORE_ENDPOINT", "127.0.0.1:2380")
    with pytest.raises(_bindings.nixlInvalidParamError, match="one of them"):
        new_agent()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A real etcd's address."""
    program = os.environ.get("WARPVERBS_ETCD") or shutil.which("etcd")
    if not program:
        pytest.skip("no etcd here (Debian: etcd-server; or WARPVERBS_ETCD)")
    pytest.importorskip("etcd3gw", reason="the package etcd3gw is not installed")
    url, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    words = ["--data-dir", tmp_path / "data", "--listen-client-urls", url, "--advertise-client-urls", url]
    words += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
    words += ["--initial-cluster", f"default={peers}"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log)
    # A proxy of the environment has no business with loopback.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", url)
    monkeypatch.delenv("NIXL_TCPSTORE_ENDPOINT", raising=False)

    def answers():
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    try:
        # It takes its time where disks are slow.
        end = time.monotonic() + 80
        while not answers():
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def test_metadata_travel_by_a_real_etcd(server, rng, monkeypatch):
    import etcd3gw

    monkeypatch.setenv("NIXL_ETCD_NAMESPACE", "/warpverbs/tests")
    name = exchanged(rng)
    host, port = server.removeprefix("http://").split(":")
    stored = etcd3gw.client(host=host, port=int(port)).get_prefix("/warpverbs/tests/")
    keys = {pair["key"].decode() for _, pair in stored}
    assert keys == {f"/warpverbs/tests/{name}/{label}" for label in ("metadata", "second")}
