"""Asks a `midair serve`, by HTTP or at a unix socket.

    from midair import serve

    server = serve.Client("unix:/run/midair/socket")
    for process in server.processes():
        profile = server.profile(process["pid"], seconds=5)
"""

import http.client
import json
import shutil
import socket
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union, cast
from urllib.parse import urlencode, urlsplit

#: Where a server listens by default.
ADDRESS = "http://127.0.0.1:9468"


class ServeError(RuntimeError):
    """A request that failed. `exit_code` is the one of a failed attach, where there was one: docs/exit-codes.md."""

    def __init__(self, status: int, message: str, exit_code: Optional[int]) -> None:
        super().__init__(message)
        self.status = status
        self.exit_code = exit_code


class _AtSocket(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """A server at an address: `http://HOST:PORT`, `https://` through a proxy, or `unix:PATH`."""

    def __init__(self, address: str = ADDRESS, token: Optional[str] = None, timeout: float = 30) -> None:
        """`timeout` is in seconds, and is added to the time that a request records."""
        self._address = address
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = timeout

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._address.startswith("unix:"):
            return _AtSocket(self._address[len("unix:") :], timeout)
        parts = urlsplit(self._address)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.netloc, timeout=timeout)
        if parts.scheme != "http" or not parts.netloc:
            raise ValueError(f"{self._address} is neither http://HOST:PORT nor unix:PATH")
        return http.client.HTTPConnection(parts.netloc, timeout=timeout)

    def _ask(self, path: str, query: Mapping[str, object], seconds: float = 0) -> http.client.HTTPResponse:
        given = {key: value for key, value in query.items() if value is not None}
        connection = self._connection(self._timeout + seconds)
        connection.request("GET", f"{path}?{urlencode(given)}" if given else path, headers=self._headers)
        response = connection.getresponse()
        if response.status == 200:
            return response
        text = response.read().decode(errors="replace")
        connection.close()
        try:
            said = json.loads(text)
            raise ServeError(response.status, str(said["error"]), said.get("exit_code"))
        except (ValueError, KeyError, TypeError):
            raise ServeError(response.status, text.strip(), None) from None

    def _read(self, path: str, query: Mapping[str, object], seconds: float = 0) -> bytes:
        with self._ask(path, query, seconds) as response:
            return response.read()

    def _document(self, path: str, query: Mapping[str, object], seconds: float = 0) -> Dict[str, Any]:
        return cast(Dict[str, Any], json.loads(self._read(path, query, seconds)))

    def metrics(self) -> str:
        """Returns the page of metrics."""
        return self._read("/metrics", {}).decode()

    def processes(self) -> List[Dict[str, Any]]:
        """Returns the processes that may be named, as `midair ps --json` has them."""
        return cast(List[Dict[str, Any]], self._document("/processes", {})["processes"])

    def top(self, pid: int, seconds: float = 1) -> Dict[str, Any]:
        """Watches a process for so long, and returns the document of `midair top --json`."""
        return self._document(f"/top/{pid}", {"seconds": seconds}, seconds)

    def follow(self, pid: int, interval: float = 1, seconds: Optional[float] = None) -> Iterator[Dict[str, Any]]:
        """Yields such a document at each interval. The process is detached from when the iterator is closed."""
        query = {"stream": 1, "interval": interval, "seconds": seconds}
        with self._ask(f"/top/{pid}", query, interval) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield cast(Dict[str, Any], json.loads(line[len(b"data: ") :]))

    def why(self, pid: int, seconds: float = 1) -> Dict[str, Any]:
        """Returns what a process waits for, as `midair why --json` has it."""
        return self._document(f"/why/{pid}", {"seconds": seconds}, seconds)

    def profile(
        self,
        pid: Optional[int] = None,
        seconds: float = 5,
        stacks: Optional[str] = None,
        overhead: Optional[int] = None,
        **labels: str,
    ) -> bytes:
        """Returns a profile for pprof of a process, or of all, or of those with such labels: ``program``, ``container``, ``pod``, ``job``, ``rank``."""
        query = {"pid": pid, "seconds": seconds, "stacks": stacks, "overhead": overhead, **labels}
        return self._read("/debug/pprof/gpu", query, seconds)

    def record(
        self,
        pid: int,
        to: Union[str, Path],
        seconds: float = 5,
        format: str = "pftrace",
        stacks: Optional[str] = None,
        overhead: Optional[int] = None,
    ) -> Path:
        """Records a process into this file, which is replaced. Returns its path."""
        query = {"seconds": seconds, "format": format, "stacks": stacks, "overhead": overhead}
        with self._ask(f"/record/{pid}", query, seconds) as response, open(to, "wb") as file:
            shutil.copyfileobj(response, file)
        return Path(to)
