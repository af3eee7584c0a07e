"""A web server on this machine for tests of downloads; it can cut connections and refuse to
resume.
"""

import contextlib
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``server.body``; ``server.cuts`` is how many bytes to send before each of the next
    connections is cut.
    """

    def do_GET(self):
        server, body = self.server, self.server.body
        server.ranges.append(self.headers.get("Range"))
        if self.path == "/missing.zip":
            return self.send_error(404, "Not Found")
        start = 0
        if server.resumes and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if self.path != "/unknown-length.zip":
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        stop = start + server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[start:stop])
        self.close_connection = True

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(body):
    """A server that answers every path but /missing.zip with ``body``."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.body, server.cuts, server.ranges, server.resumes = body, [], [], True
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
