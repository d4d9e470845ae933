"""Bodies of requests: JSON that means the same to a reader of YAML.

Server-side apply is read by the API server as YAML, JSON or not. That reader refuses an escaped
character beyond U+FFFF (two escapes in JSON), so these go as they are; it refuses others that are
not escaped, and takes some for the end of a line, which changes the text.
"""

import json
import re
from typing import Any

import orjson

_TO_ESCAPE = re.compile(b"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]")
"""In UTF-8: DEL, the C1 controls (NEL is one), line and paragraph separator, U+FEFF, U+FFFE/F."""


def encode(body: Any) -> bytes:
    """The body in UTF-8."""
    try:
        raw = orjson.dumps(body)
    except TypeError:
        # orjson ends at 254 levels, the API server stores 10,000.
        raw = json.dumps(body, ensure_ascii=False).encode()
    return _TO_ESCAPE.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), raw)
