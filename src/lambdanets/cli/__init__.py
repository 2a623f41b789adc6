"""The command `lambdanets`: parse, call, print. No other package imports it.

Each subcommand is a file with `add_parser`, which declares its arguments, and `run`, which imports what it needs.
"""
