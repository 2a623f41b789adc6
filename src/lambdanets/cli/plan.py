"""`lambdanets plan`: shows the cost of each plan for a layer's position term, and which one is chosen."""

import argparse

from lambdanets.cli.output import say
from lambdanets.cli.parser import Subparsers, UserError, add_command, positive, seconds, sizes


def scope(text: str) -> tuple[int, ...] | None:
    return None if text == "global" else sizes(text)


def add_parser(commands: Subparsers) -> None:
    parser = add_command(
        commands, "plan", "show the cost of each plan for a layer's position term on maps of a size", run
    )
    parser.add_argument(
        "size", metavar="SIZE", type=sizes, help="size of the feature maps, such as 56 or 56x40, or 16384 with --dims 1"
    )
    parser.add_argument("--dims", type=int, choices=(1, 2, 3), default=2, help="number of axes of the feature maps")
    parser.add_argument("--d", type=positive, default=64, help="channels of the input")
    parser.add_argument(
        "--d-out", type=positive, metavar="D", help="channels of the output (default: those of the input)"
    )
    parser.add_argument("--k", type=positive, default=16, help="depth of queries and keys")
    parser.add_argument("--h", type=positive, default=4, help="queries per position that share a lambda")
    parser.add_argument("--u", type=positive, default=1, help="intra-depth")
    parser.add_argument("--scope", type=scope, default="23", help="side of the window, an odd number, or global")
    parser.add_argument("--dilation", type=sizes, default="1", help="dilation of the window")
    parser.add_argument("--stride", type=sizes, default="1", help="stride between output positions")
    parser.add_argument("--causal", action="store_true", help="positions use only themselves and earlier ones")
    parser.add_argument("--batch", type=positive, default=8, help="batch size")
    parser.add_argument("--training", action="store_true", help="include the backward pass")
    parser.add_argument(
        "--patience", type=seconds, default=5.0, metavar="S", help="do not measure plans predicted to take longer"
    )


def run(options: argparse.Namespace) -> None:
    from lambdanets.nn import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d

    layer_class = {1: LambdaLayer1d, 2: LambdaLayer2d, 3: LambdaLayer3d}[options.dims]
    size = for_every_axis(options.size)
    try:
        layer = layer_class(
            options.d,
            options.d_out,
            k=options.k,
            h=options.h,
            u=options.u,
            scope=None if options.scope is None else for_every_axis(options.scope),
            size=size if options.scope is None else None,
            dilation=for_every_axis(options.dilation),
            stride=for_every_axis(options.stride),
            causal=options.causal,
        )
        explained = layer.explain(size, b=options.batch, training=options.training, patience=options.patience)
    except ValueError as error:
        raise UserError(str(error)) from error
    say(*explained.plans)


def for_every_axis(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """A single number applies to every axis."""
    return numbers if len(numbers) > 1 else numbers[0]
