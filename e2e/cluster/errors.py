"""The one exception that the tool shows to people."""

from __future__ import annotations


class ClusterError(Exception):
    """A failure that one line explains: what, and what to do. The tool prints it and exits 1."""
