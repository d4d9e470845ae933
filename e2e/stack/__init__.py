"""What the demo and the end-to-end tests share: kubectl, the installed product, a client pod.

Everything goes through the programs a user has (kubectl, helm, `python -m cluster`), so that what
passes here is what a user can do by hand.
"""
