"""`lambdanets export`: a network as a file that other programs run."""

import argparse
from pathlib import Path

from lambdanets.cli.model_argument import add_model_argument, model_from
from lambdanets.cli.output import complain, say
from lambdanets.cli.parser import Subparsers, UserError, add_command, from_extra, image_size


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "export", "a network as a file that other programs run, compared with it", run)
    add_model_argument(parser)
    parser.add_argument("--format", choices=("onnx", "pt2"), help="by default what FILE ends with, onnx without a FILE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="MODEL.onnx or MODEL.pt2 here by default")
    parser.add_argument(
        "--size", type=image_size, metavar="N", help="of the images, 224 or 224x160; that of the model by default"
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
