"""The inference engines: their rules, command lines, ports and environment. Pure.

Everything that differs between engines is here; no other layer asks which engine it is.
"""
