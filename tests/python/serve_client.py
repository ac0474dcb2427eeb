"""Asks a server by `midair.serve`, and prints what it got as JSON.

    serve_client.py SITE ADDRESS PID DIRECTORY"""

import json
import sys

sys.path.insert(0, sys.argv[1])
from midair import serve  # noqa: E402

_, _, address, pid, directory = sys.argv
server, pid = serve.Client(address), int(pid)
try:
    server.why(1)
    refused = None
except serve.ServeError as error:
    refused = [error.status, error.exit_code, str(error)]
documents = []
for document in server.follow(pid, interval=0.25):
    documents.append(document["pid"])
    if len(documents) == 2:
        break
json.dump(
    {
        "pids": [process["pid"] for process in server.processes()],
        "top": server.top(pid, seconds=0.3)["schema"],
        "follow": documents,
        "why": server.why(pid, seconds=0.1)["pid"],
        "profile": server.profile(pid, seconds=0.3)[:2].hex(),
        "record": server.record(pid, f"{directory}/x.json", seconds=0.3, format="json").stat().st_size,
        "metrics": "midair_serve_requests_total" in server.metrics(),
        "refused": refused,
    },
    sys.stdout,
)
