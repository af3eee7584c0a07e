"""A stand-in for the HTTP interface of the Hugging Face Hub: repositories of models in memory.

It answers what huggingface-hub asks when it makes a repository, uploads small files and downloads
them, and records every request. Files that it was not given do not exist.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_test"


class Repositories:
    """Commits by repository: each a hash and all files as they were then."""

    def __init__(self) -> None:
        self.commits: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.asked: list[str] = []

    def files(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        found = self.commits.get(name, [])
        if revision == "main" and found:
            return found[-1]
        return next((commit for commit in found if commit[0] == revision), None)

    def commit(self, name: str, lines: list[dict[str, Any]]) -> str:
        files = dict(self.commits[name][-1][1])
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                files.pop(line["value"]["path"])
        oid = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[name].append((oid, files))
        return oid


@contextmanager
def serve() -> Iterator[tuple[str, Repositories]]:
    """Run it, and yield its address and what it holds."""
    held = Repositories()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(self._read())

        do_HEAD = do_GET

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self._answer((401, b"{}", {}))
            return self._answer(self._write(body))

        def _read(self) -> tuple[int, bytes, dict[str, str]]:
            path = unquote(self.path.partition("?")[0])
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(\S+))?", path):
                commit = held.files(found[1], found[2] or "main")
                if commit is None:
                    return 404, b"{}", {"X-Error-Code": "RepoNotFound"}
                siblings = [{"rfilename": name} for name in commit[1]]
                about = {"id": found[1], "modelId": found[1], "sha": commit[0]}
                return (
                    200,
                    json.dumps(about | {"siblings": siblings, "private": False}).encode(),
                    {},
                )
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(\S+)", path):
                commit = held.files(found[1], found[2])
                if commit is None:
                    return 404, b"{}", {"X-Error-Code": "RepoNotFound"}
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                    for name, content in commit[1].items()
                ]
                return 200, json.dumps(tree).encode(), {}
            if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                commit = held.files(found[1], found[2])
                if commit is None or found[3] not in commit[1]:
                    return 404, b"", {"X-Error-Code": "EntryNotFound"}
                content = commit[1][found[3]]
                tag = f'"{hashlib.sha256(content).hexdigest()}"'
                return 200, content, {"X-Repo-Commit": commit[0], "ETag": tag}
            return 404, b"{}", {}

        def _write(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
            if self.path == "/api/repos/create":
                asked = json.loads(body)
                name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
                name = name if "/" in name else f"user/{name}"
                if name in held.commits:
                    return 409, json.dumps({"url": name}).encode(), {}
                held.commits[name] = [("0" * 40, {})]
                return 200, json.dumps({"url": f"{self._host()}/{name}"}).encode(), {}
            if self.path == "/api/validate-yaml":
                return 200, b'{"errors": [], "warnings": []}', {}
            found = re.match(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", self.path)
            if not found:
                return 404, b"{}", {}
            if found[2] == "preupload":
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
                return 200, json.dumps({"files": files}).encode(), {}
            oid = held.commit(found[1], [json.loads(line) for line in body.splitlines()])
            about = {"commitUrl": f"{self._host()}/{found[1]}/commit/{oid}", "commitOid": oid}
            return 200, json.dumps(about | {"success": True}).encode(), {}

        def _host(self) -> str:
            return f"http://{self.headers['Host']}"

        def _answer(self, answer: tuple[int, bytes, dict[str, str]]) -> None:
            code, content, headers = answer
            held.asked.append(f"{self.command} {self.path} {code}")
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", held
    finally:
        server.shutdown()
        server.server_close()
