"""The program ``kvserving``: render, validate and compare KVServing objects from a terminal or CI.

It answers with the operator's own code: ``admission`` for what the API server says, ``plan`` and
``render`` for what the operator makes of an object.
"""
