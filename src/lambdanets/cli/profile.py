"""`lambdanets profile`: shows parameters, FLOPs, memory and time of a network by stage."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lambdanets.cli.model_argument import add_model_argument, model_from
from lambdanets.cli.output import safe
from lambdanets.cli.parser import (
    Subparsers,
    UserError,
    add_command,
    check_writable,
    image_size,
    positive,
    write,
)


def add_parser(commands: Subparsers) -> None:
    summary = "show parameters, FLOPs, activation memory, time and plans of a network, stage by stage"
    parser = add_command(commands, "profile", summary, run)
    add_model_argument(parser)
    parser.add_argument(
        "--size", type=image_size, metavar="N", help="image size, such as 224 or 224x160 (default: the model's)"
    )
    parser.add_argument("--batch", type=positive, default=8, metavar="B", help="batch size")
    parser.add_argument("--rounds", type=positive, default=5, help="forward passes to time; the fastest is reported")
    parser.add_argument("--threads", type=positive, help="number of threads (default: torch's)")
    parser.add_argument("--json", type=Path, metavar="F", help="write the results to this file, as JSON")


def run(options: argparse.Namespace) -> None:
    import torch
    from rich.text import Text

    from lambdanets.bench.formats import convert
    from lambdanets.cli.tables import table
    from lambdanets.cli.terminal import progress_console, wide_console
    from lambdanets.cost import profile

    check_writable("--json", options.json)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    model = model_from(options)
    convert(model, "channels-last")
    try:
        inputs = model.example_inputs(options.batch, options.size)
        inputs = tuple(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs)
        with progress_console().status(Text(safe(f"running {options.model}"))):
            costs = profile(model, inputs, rounds=options.rounds)
    except ValueError as error:
        raise UserError(str(error)) from error
    whole = costs[-1]
    title = f"{options.model}, {describe([x.shape for x in inputs])}, {torch.get_num_threads()} threads"
    shown = table(
        title, "stage", "parameters, M", "FLOPs of all, G", "kept for backward, MB", "forward, ms", "%", "plans"
    )
    shown.columns[0].justify = shown.columns[-1].justify = "left"
    for cost in costs:
        plans = ", ".join(f"{plan} x {n}" for plan, n in cost.plans.items())
        shown.add_row(
            cost.name,
            f"{cost.parameters / 1e6:.3f}",
            f"{cost.flops / 1e9:.2f}",
            f"{cost.activation_bytes / 1e6:.1f}",
            f"{1e3 * cost.seconds:.1f}",
            f"{100 * cost.seconds / whole.seconds:.0f}",
            plans,
            end_section=cost is costs[-2],
        )
    wide_console().print(shown)
    if options.json is not None:
        write(options.json, json.dumps([asdict(cost) for cost in costs], indent=1))


def describe(shapes: Sequence[Sequence[int]]) -> str:
    """
    >>> describe([(2, 3, 32, 64)]), describe([(2, 50), (2, 7)])
    ('2 images of 32 x 64', 'inputs of 2 x 50 and 2 x 7')
    """
    if [len(shape) for shape in shapes] == [4]:
        b, _, height, width = shapes[0]
        return f"{b} images of {height} x {width}"
    return f"inputs of {' and '.join(' x '.join(map(str, shape)) for shape in shapes)}"
