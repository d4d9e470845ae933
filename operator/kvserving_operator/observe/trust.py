"""Whose certificates a client of the operator accepts."""

import ssl


def context_of(authority: str) -> ssl.SSLContext:
    """A context that trusts these authorities (PEM), or those of the system where there are none.

    Raises ssl.SSLError where the text holds no certificate. Bundles name their authorities in
    comments, in any language; what is no ASCII there is nothing to the certificates.
    """
    plain = authority.encode("ascii", "replace").decode("ascii")
    if authority and not plain.strip():
        raise ssl.SSLError("no certificate")
    return ssl.create_default_context(cadata=plain or None)
