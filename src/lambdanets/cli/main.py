"""The command `lambdanets` and its subcommands."""

import sys
from collections.abc import Sequence

import lambdanets
from lambdanets.cli import bench, evaluate, export, info, paper, plan, predict, profile, runs, train
from lambdanets.cli.parser import Parser, UserError


def make_parser() -> Parser:
    parser = Parser(prog="lambdanets", description="Lambda layers for PyTorch: what is here, what it costs, how fast.")
    parser.add_argument("--version", action="version", version=f"lambdanets {lambdanets.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (info, plan, profile, paper, bench, export, train, evaluate, predict, runs):
        command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; what the user can put right ends it with one line on stderr, not with a traceback."""
    options = make_parser().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options.run(options)
    except UserError as error:
        print(f"{options.prog}: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
