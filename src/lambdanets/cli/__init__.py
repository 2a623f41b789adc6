"""The command `lambdanets`: parse, call, print. Nobody imports this room.

Each subcommand is a file with `add_parser`, which says what it takes, and `run`, which imports what it needs.
"""
