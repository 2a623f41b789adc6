"""`lambdanets predict`: what a trained network takes your images for."""

import argparse
import json
import sys
from dataclasses import asdict

from lambdanets.cli.parser import Subparsers, UserError, add_command, positive
from lambdanets.cli.run_argument import about_runs, add_run_argument, run_from


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "predict", "what a run takes images for, with probabilities", run)
    add_run_argument(parser)
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help='a file, a folder, or a pattern in quotes such as "pictures/**/*.jpg"',
    )
    parser.add_argument("--top", type=positive, default=5, metavar="N", help="classes to show for each")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each image instead of a table")


def run(options: argparse.Namespace) -> None:
    failed = 0
    with about_runs():
        from lambdanets.train.predict import Predictor, find_images

        predictor = Predictor(run_from(options))
        images = find_images(options.images)
        for complaint in predictor.complaints:
            print(f"not used: {complaint}", file=sys.stderr)
        for prediction in predictor.predict(images, options.top):
            failed += prediction.error is not None
            if options.json:
                print(json.dumps(asdict(prediction)))
            elif prediction.error is not None:
                print(f"{prediction.image}: {prediction.error}", file=sys.stderr)
            else:
                shares = "  ".join(f"{name} {share:.1%}" for name, share in prediction.top)
                print(f"{prediction.image}  {shares}")
    if failed:
        raise UserError(f"{failed} of {len(images)} images could not be read", code=1)
