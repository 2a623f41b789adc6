"""`lambdanets export`: writes a network as ONNX or pt2."""

import argparse
from pathlib import Path

from lambdanets.cli.model_argument import add_model_argument, model_from
from lambdanets.cli.output import complain, say
from lambdanets.cli.parser import Subparsers, UserError, add_command, from_extra, image_size


def add_parser(commands: Subparsers) -> None:
    parser = add_command(
        commands, "export", "export a network to ONNX or pt2, and check its outputs against PyTorch", run
    )
    add_model_argument(parser)
    parser.add_argument(
        "--format", choices=("onnx", "pt2"), help="file format (default: from the extension of FILE, else onnx)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="output file (default: MODEL.onnx or MODEL.pt2)"
    )
    parser.add_argument(
        "--size", type=image_size, metavar="N", help="image size, such as 224 or 224x160 (default: the model's)"
    )


def run(options: argparse.Namespace) -> None:
    from lambdanets.interop.export import ExportError, export

    model = model_from(options)
    path = options.output or Path(f"{Path(options.model).resolve().name}.{options.format or 'onnx'}")
    try:
        with from_extra("export"):
            exported = export(model, path, options.format, size=options.size, tell=to_stderr)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    except ExportError as error:
        raise UserError(str(error), code=1) from error
    say(exported)


def to_stderr(stage: str) -> None:
    complain(f"{stage} ...")
