"""A registry that asks for a password, in front of one that does not: private-registry.py HOST:PORT USER:PASSWORD

Prints where it listens.
"""

import base64
import http.server
import shutil
import sys
import urllib.error
import urllib.request

UPSTREAM, PASSWORD = sys.argv[1:]
WANTED = "Basic " + base64.b64encode(PASSWORD.encode()).decode()


class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != WANTED:
            return self.say(401, {"WWW-Authenticate": 'Basic realm="private"'})
        request = urllib.request.Request(f"http://{UPSTREAM}{self.path}", method=self.command)
        try:
            with urllib.request.urlopen(request) as answer:
                kept = ["Content-Type", "Content-Length", "Docker-Content-Digest"]
                self.say(answer.status, {name: answer.headers[name] for name in kept if name in answer.headers})
                shutil.copyfileobj(answer, self.wfile)
        except urllib.error.HTTPError as error:
            self.say(error.code, {})

    do_HEAD = do_GET

    def say(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
print(f"127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
