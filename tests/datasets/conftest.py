"""Every test starts without the user's data settings, with an empty cache and no proxy."""

from __future__ import annotations

import http.server
import lzma
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dprepro.datasets import covertype, sources


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DPREPRO_DATA_DIR", "DPREPRO_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "cache"
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("DPREPRO_DATA_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def covertype_table() -> covertype.Table:
    content = lzma.decompress((sources.EMBEDDED / covertype.COMPACT.name).read_bytes())
    return covertype.read_table(sources.Fetched(covertype.COMPACT, content, "embedded"))


@pytest.fixture(scope="session")
def covertype_csv(covertype_table: covertype.Table) -> bytes:
    """The table as UCI's `covtype.data` prints it; a genuine table gives that file byte for byte."""
    endings = {
        (wilderness, soil): ",".join(
            [str(int(k == wilderness)) for k in range(covertype.WILDERNESS_AREAS)]
            + [str(int(k == soil)) for k in range(covertype.SOIL_TYPES)]
        )
        for wilderness in range(covertype.WILDERNESS_AREAS)
        for soil in range(covertype.SOIL_TYPES)
    }
    line = "%d," * len(covertype.RANGES) + "%s,%d\n"
    codes = zip(covertype_table.wilderness.tolist(), covertype_table.soil.tolist(), strict=True)
    rows = zip(
        *covertype_table.numeric.T.tolist(),
        map(endings.__getitem__, codes),
        covertype_table.cover.tolist(),
        strict=True,
    )
    return "".join(map(line.__mod__, rows)).encode()


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, bytes]], str]]:
    """Start a web server on this machine that knows the given paths; return its base address."""
    servers = []

    def start(pages: dict[str, bytes]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
