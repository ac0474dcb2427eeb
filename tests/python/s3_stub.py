"""A store that speaks as much of S3 as an upload needs, and checks each signature with Python's own hmac and hashlib.

Usage: s3_stub.py DIRECTORY [CERTIFICATE KEY]. Prints its port. Objects are files below DIRECTORY/objects. How it behaves is the text of the
file DIRECTORY/mode, read for each request: ok, busy (503), deaf (it reads and never answers) or shut (it closes instead of an answer).
"""

import datetime
import hashlib
import hmac
import http.server
import pathlib
import ssl
import sys
import threading
import urllib.parse

DIRECTORY = pathlib.Path(sys.argv[1])
KEYS = {"AKIDMIDAIR": ("sEcReT/of+midair=", "session/token+of=="), "AKIDPLAIN": ("plain-secret", None)}
REGION = "eu-test-1"
OVER = threading.Event()


def signature(secret, scope, text):
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, code=""):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def wrong(self, body):
        """Why a request is not one of a writer's, by the names of S3."""
        algorithm, _, rest = self.headers["Authorization"].partition(" ")
        parts = dict(part.strip().split("=", 1) for part in rest.split(","))
        key, _, scope = parts["Credential"].partition("/")
        if algorithm != "AWS4-HMAC-SHA256" or key not in KEYS:
            return "InvalidAccessKeyId"
        secret, session = KEYS[key]
        if self.headers.get("x-amz-security-token") != session:
            return "InvalidToken"
        date = self.headers["x-amz-date"]
        time = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs((datetime.datetime.now(datetime.timezone.utc) - time).total_seconds()) > 900:
            return "RequestTimeTooSkewed"
        if scope != f"{date[:8]}/{REGION}/s3/aws4_request":
            return "AuthorizationHeaderMalformed"
        named = parts["SignedHeaders"].split(";")
        # The host, and all that speaks of the request, has to be signed.
        due = {"host"} | {name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        if named != sorted(named) or not due <= set(named):
            return "AccessDenied"
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return "XAmzContentSHA256Mismatch"
        path, _, query = self.path.partition("?")
        path = urllib.parse.quote(urllib.parse.unquote(path), safe="/-._~")
        lines = "".join(f"{name}:{self.headers[name].strip()}\n" for name in named)
        request = "\n".join(["PUT", path, query, lines, ";".join(named), self.headers["x-amz-content-sha256"]])
        text = "\n".join([algorithm, date, scope, hashlib.sha256(request.encode()).hexdigest()])
        return "" if hmac.compare_digest(signature(secret, scope, text), parts["Signature"]) else "SignatureDoesNotMatch"

    def do_PUT(self):
        mode = (DIRECTORY / "mode").read_text().strip()
        if mode == "shut":
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if mode == "deaf":
            OVER.wait()
        elif mode == "busy":
            self.say(503, "SlowDown")
        elif wrong := self.wrong(body):
            self.say(403, wrong)
        else:
            at = DIRECTORY / "objects" / urllib.parse.unquote(self.path).lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(body)
            self.say(200)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if sys.argv[2:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[2:])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(f"port {server.server_port}", flush=True)
server.serve_forever()
