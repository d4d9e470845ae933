"""Measuring on a GPU: graph timing, decode steps of given shapes."""
