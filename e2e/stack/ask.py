"""One question to an OpenAI-compatible server, from inside a pod; prints one JSON line.

Runs by `python3 - URL BODY_JSON` with this file on standard input; standard library only.
"""

import json
import sys
import time
import urllib.error
import urllib.request

# ruff: noqa: S310  the URL is a test's own


def main() -> None:
    url, body = sys.argv[1], sys.argv[2].encode()
    path = "/v1/chat/completions" if b'"messages"' in body else "/v1/completions"
    request = urllib.request.Request(url + path, body, {"content-type": "application/json"})
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=110) as response:
            out = {"status": response.status, "body": json.load(response)}
    except urllib.error.HTTPError as error:
        out = {"status": error.code, "body": error.read().decode(errors="replace")[:500]}
    except OSError as error:
        out = {"status": 0, "body": repr(error)[:500]}
    print(json.dumps({**out, "seconds": round(time.monotonic() - start, 3)}))


main()
