"""The subcommands of `python -m cluster`, one module each.

A subcommand's module has `add_parser(subparsers)`, which sets `run` as the parser's default: a
function from the parsed options to the exit code.
"""
