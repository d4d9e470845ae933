"""Unit tests of the cluster tool: pure parts, no root, seconds."""
