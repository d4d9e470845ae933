"""The bearer tokens that open the agent, read from a file that is replaced while we run.

The file holds one token a line: one normally, two while the operator rotates them. Anything else
(absent, unreadable, empty, more than two lines, too large) opens nothing: the agent fails closed.
"""

from __future__ import annotations

import hmac
import logging
import os
from hashlib import sha256
from pathlib import Path

MAX_TOKENS = 2
MAX_FILE_BYTES = 4096

_log = logging.getLogger(__name__)


class TokenFile:
    """Tells whether a presented token is one of those in the file, as the file is now.

    The file is looked at (one `stat`) for each question and read again when it is another one:
    the kubelet replaces a Secret's files by renaming a link above them, so that device, inode,
    size and time of change of the file behind the path differ.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._digests: tuple[bytes, ...] = ()
        self._fault = ""

    def accepts(self, presented: str) -> bool:
        """True for a token of the file; takes the same time for any other one.

        Digests are compared and not the tokens, which hides their length too, and every token is
        compared whether or not an earlier one was equal.
        """
        digest = sha256(presented.encode("utf-8", "surrogateescape")).digest()
        equal = [hmac.compare_digest(digest, known) for known in self._current()]
        return any(equal)

    def _current(self) -> tuple[bytes, ...]:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - of the file behind the links
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                self._digests = self._read()
                self._stamp, self._fault = stamp, ""
        except (OSError, ValueError) as error:
            self._digests, self._stamp = (), None
            if str(error) != self._fault:
                self._fault = str(error)
                _log.error("no token is accepted", extra={"reason": self._fault})
        return self._digests

    def _read(self) -> tuple[bytes, ...]:
        with self._path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"the token file is larger than {MAX_FILE_BYTES} bytes")
        tokens = [line.strip() for line in content.splitlines() if line.strip()]
        if not 1 <= len(tokens) <= MAX_TOKENS:
            raise ValueError(f"the token file has {len(tokens)} tokens, must have 1 or 2")
        return tuple(sha256(token).digest() for token in tokens)
