"""Unit tests of what the demo and the end-to-end tests share: stand-in programs, no cluster."""
