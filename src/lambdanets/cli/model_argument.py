"""MODEL, the argument of every command on a network: a name with changes, or a folder."""

import argparse
from pathlib import Path
from typing import Any

from lambdanets.cli.parser import Parser, UserError
from lambdanets.fields import hints_of, read
from lambdanets.models import Network, create_model, list_models, load_model
from lambdanets.models.registry import find_config


def add_model_argument(parser: Parser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="name of a model, such as lambda_resnet50, or folder of a saved network"
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="changes",
        type=change,
        action="append",
        help="change the configuration of the model, such as k=8 or placement=CCLL; can be repeated",
    )


def model_from(options: argparse.Namespace) -> Network:
    """The network that MODEL and --set describe. The name of a model takes precedence over a folder."""
    name, changes = options.model, options.changes or []
    saved = name not in list_models()
    if saved and not Path(name).is_dir():
        raise UserError(f"no model or folder {name!r}; models are {', '.join(list_models())}")
    if saved and changes:
        raise UserError(f"--set applies to the name of a model, but {name} is a folder")
    try:
        return load_model(name) if saved else create_model(name, **typed(changes, type(find_config(name))))
    except ModuleNotFoundError as error:  # its message says what to install
        raise UserError(str(error), code=1) from error
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def change(text: str) -> tuple[str, str]:
    """
    >>> change("k=8")
    ('k', '8')
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be like k=8, got {text!r}")
    return name, value


def typed(changes: list[tuple[str, str]], config: type) -> dict[str, Any]:
    """Parse texts as values of the configuration's fields; `create_model` reports unknown fields.

    >>> from lambdanets.models import ResNetConfig
    >>> typed([("placement", "1111"), ("scope", "None"), ("blocks", "1, 1, 1, 1"), ("setup", "350")], ResNetConfig)
    {'placement': '1111', 'scope': None, 'blocks': (1, 1, 1, 1), 'setup': '350'}
    """
    hints = hints_of(config)
    values = {}
    for name, text in changes:
        try:
            values[name] = read(text, hints.get(name, str))
        except TypeError as error:
            raise UserError(f"--set {name} {error}") from error
    return values
