"""Discrete-event simulation of prefill engines, their tiers, router and decode. Pure.

A scenario and requests in, latencies out; the only chance is a seeded generator. ``world.py`` runs
it, ``engine.py`` is one prefill engine; requests come from a trace (``trace.py``) or are drawn from
a workload (``arrivals.py``). Nothing here opens a file: the program ``kvserving`` does.
"""
