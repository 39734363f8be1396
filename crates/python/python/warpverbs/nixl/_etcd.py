"""Metadata by etcd. Its client, the package `etcd3gw`, is imported when metadata go by it, not before."""

from __future__ import annotations

import time
from typing import Any, Callable
from urllib.parse import urlsplit

# How long a request to one endpoint may take, in seconds, and the time between two looks at a key.
PATIENCE = 5.0
PAUSE = 0.05

_EXPECTED = "expected http://HOST:PORT, or several with commas between them"


class Etcd:
    """The etcd of `NIXL_ETCD_ENDPOINTS`. The first endpoint that answers serves a request."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = endpoints
        self._clients: dict[str, Any] = {}

    def check(self) -> None:
        """Raises ModuleNotFoundError without the client, and ValueError if the endpoints are wrong."""
        self._places()
        _client()

    def put(self, key: str, value: bytes) -> None:
        """Stores a value, in place of one that was there."""
        self._first(time.monotonic() + PATIENCE, lambda client: client.put(key, value))

    def get(self, key: str, timeout: float) -> bytes:
        """The value of a key; waits until there is one."""
        end = time.monotonic() + timeout
        while True:
            found = self._first(end, lambda client: client.get(key))
            # NIXL's agents announce themselves by keys without a value.
            if found and found[0]:
                return found[0]
            if time.monotonic() + PAUSE >= end:
                raise TimeoutError(f"no value after {timeout:.1f} s")
            time.sleep(PAUSE)

    def _places(self) -> list[tuple[str, dict[str, Any]]]:
        """Each endpoint, and how it is named to the client."""
        found = []
        for text in self._endpoints.replace(";", ",").split(","):
            try:
                url = urlsplit(text.strip() if "://" in text else f"http://{text.strip()}")
                host, port, protocol = url.hostname, url.port, url.scheme
            except ValueError:
                host = port = protocol = None
            if not host or not port or protocol not in ("http", "https"):
                raise ValueError(f"NIXL_ETCD_ENDPOINTS is {self._endpoints!r}, {_EXPECTED}")
            found.append((url.geturl(), {"host": host, "port": port, "protocol": protocol}))
        return found

    def _first(self, end: float, request: Callable[[Any], Any]) -> Any:
        failed: list[str] = []
        for url, place in self._places():
            left = end - time.monotonic()
            if failed and left <= 0:
                break
            try:
                if url not in self._clients:
                    self._clients[url] = _client()(**place)
                self._clients[url].timeout = min(max(left, PAUSE), PATIENCE)
                return request(self._clients[url])
            except ModuleNotFoundError:
                raise
            except Exception as error:
                # The client's exceptions keep their cause beside their text.
                why = getattr(error, "detail_text", None) or error
                failed.append(f"{url}: {type(error).__name__}: {why}")
        raise ConnectionError("; ".join(failed))


def _client() -> Callable[..., Any]:
    """The function that makes a client."""
    try:
        from etcd3gw import client  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ModuleNotFoundError as error:
        text = "NIXL_ETCD_ENDPOINTS asks for etcd, whose client is not installed: pip install etcd3gw"
        raise ModuleNotFoundError(f"{text} ({error})", name=error.name) from error
    return client
