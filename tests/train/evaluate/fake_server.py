"""A local HTTP server with as little of the protocol as a test wants, and with any of its faults."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(content="e", finish="stop", tokens=1, **more):
    message = {"role": "assistant", "content": content, **more}
    return {
        "choices": [{"message": message, "finish_reason": finish}],
        "usage": {"completion_tokens": tokens},
    }


class Served:
    """What a server was asked, and how it answers: `answer` takes the body and returns (status, JSON or bytes)."""

    def __init__(self, answer, models=("m",)):
        self.answer, self.models = answer, models
        self.bodies, self.headers = [], []
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def serving(answer, models=("m",)):
    served = Served(answer, models)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            if self.path != "/v1/models":
                self.reply(404, {"detail": "Not Found"})
            elif served.models is None:
                self.reply(401, {"error": {"message": "no key"}})
            else:
                self.reply(200, {"data": [{"id": name} for name in served.models]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path != "/v1/chat/completions":
                self.reply(404, {"detail": "Not Found"})
                return
            with served.lock:
                served.bodies.append(body)
                served.headers.append(dict(self.headers))
            found = served.answer(body)
            if callable(found):
                found(self)
            else:
                self.reply(*found)

        def reply(self, status, body, **headers):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": len(data), **headers}.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
