"""`lambdanets plan`: what each way to compute a layer's position term costs, and which is taken."""

import argparse

from lambdanets.cli.output import say
from lambdanets.cli.parser import Subparsers, UserError, add_command, positive, seconds, sizes


def scope(text: str) -> tuple[int, ...] | None:
    return None if text == "global" else sizes(text)


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "plan", "what each plan for a layer's position term costs on maps of a size", run)
    parser.add_argument("size", metavar="SIZE", type=sizes, help="of the maps: 56 or 56x40; 16384 with --dims 1")
    parser.add_argument("--dims", type=int, choices=(1, 2, 3), default=2, help="axes of the maps")
    parser.add_argument("--d", type=positive, default=64, help="channels of the input")
    parser.add_argument("--d-out", type=positive, metavar="D", help="channels of the output; as many by default")
    parser.add_argument("--k", type=positive, default=16, help="depth of queries and keys")
    parser.add_argument("--h", type=positive, default=4, help="queries per position that share a lambda")
    parser.add_argument("--u", type=positive, default=1, help="intra-depth")
    parser.add_argument("--scope", type=scope, default="23", help="odd side of the window, or global")
    parser.add_argument("--dilation", type=sizes, default="1", help="spacing of the window")
    parser.add_argument("--stride", type=sizes, default="1", help="between output positions")
    parser.add_argument("--causal", action="store_true", help="positions use what comes before them")
    parser.add_argument("--batch", type=positive, default=8, help="maps at once")
    parser.add_argument("--training", action="store_true", help="with the backward pass")
    parser.add_argument(
        "--patience", type=seconds, default=5.0, metavar="S", help="measure plans predicted to take less seconds"
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
    """A single number stands for every axis."""
    return numbers if len(numbers) > 1 else numbers[0]
