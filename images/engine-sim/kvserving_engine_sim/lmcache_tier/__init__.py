"""LMCache 0.5.6 behind the engine: real engines on every rank, the real lookup between them.

service.py is the one place that constructs LMCache's objects; everything else uses what it built.
"""
