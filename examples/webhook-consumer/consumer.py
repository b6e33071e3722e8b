"""An endpoint for webhooks: checks the signature, skips repetitions, prints the events. `WEBHOOK_SECRET=whsec_… python3 consumer.py PORT`"""
import http.server
import json
import os
import sys

from tavern_client import verify_webhook

last_seq = 0      # a real service keeps this in its database, with what it did


class Consumer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        global last_seq
        # The bytes as they arrived are what is signed.
        body = self.rfile.read(int(self.headers["content-length"]))
        if not verify_webhook(os.environ["WEBHOOK_SECRET"], dict(self.headers), body):
            return self.answer(401)
        for event in json.loads(body)["events"]:
            if event["seq"] > last_seq:      # the same event may come twice
                print(event["type"], json.dumps(event["data"], separators=(",", ":")), flush=True)
                last_seq = event["seq"]
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), Consumer)
print("listening", flush=True)
server.serve_forever()
