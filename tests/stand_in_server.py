"""A program that stands in for vLLM's server where processes are tested: the same flags, but no model.

It is healthy at once, asks for the API key of its environment, counts nothing, and answers every request with
one token.
"""

HEALTHY = """
import http.server, json, os, socketserver, sys

COUNTERS = ("prompt_tokens", "prompt_tokens_cached", "generation_tokens")
CHOICE = {"text": "", "token_ids": [1], "finish_reason": "length"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1}

def flag(name):
    return sys.argv[sys.argv.index(name) + 1]

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        key = os.environ.get("VLLM_API_KEY")
        if key and self.headers["Authorization"] != f"Bearer {key}":
            self.say("", 401)
        elif self.path == "/metrics":
            self.say("".join(f"vllm:{name}_total 0\\n" for name in COUNTERS))
        else:
            self.say(json.dumps({"data": [{"id": flag("--served-model-name")}]}))
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.say(json.dumps({"choices": [CHOICE], "usage": USAGE}))
    def say(self, text, status=200):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def address_string(self):
        return "client"

class Unix(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("client", 0)

print("ready", flush=True)
if "--uds" in sys.argv:
    Unix(flag("--uds"), Answer).serve_forever()
else:
    http.server.HTTPServer((flag("--host"), int(flag("--port"))), Answer).serve_forever()
"""
