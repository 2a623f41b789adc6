"""Networks as files that other programs run: ONNX, and torch's own pt2.

Files contain standard operators only, whichever plan computes a layer here, so that they need none of our kernels. A
file gets its name only after it was read back, run, and found equal to the network.
"""

import io
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from lambdanets.compat import OpOverload
from lambdanets.files import atomic_path, can_be_written
from lambdanets.models import ImageConfig, Network
from lambdanets.nn.arguments import per_axis, positive
from lambdanets.nn.modes import evaluating

TRACED_BATCH = 2  # torch would take a size of 1 for a constant
CHECKED_BATCHES = (1, 5)
# Beyond this, torch writes the weights of an ONNX graph into a second file.
LARGEST_ONNX = 1536 * 2**20
# A network that amplifies rounding beyond this cannot show that its file is right.
ROUGHEST = 1e-3

# Inputs of a network for a batch of b.
MakeInputs = Callable[[int], tuple[Tensor, ...]]


class ExportError(RuntimeError):
    """The exported network is not the one requested; no file has been written."""


@dataclass(frozen=True)
class Exported:
    """A written file, and how well it agrees with the network."""

    path: Path
    bytes: int
    operators: int  # nodes of the graph
    opset: int | None  # of ONNX; None for pt2
    difference: float  # the largest of any output, relative to the largest output

    def __str__(self) -> str:
        opset = "" if self.opset is None else f", opset {self.opset}"
        agreement = f"largest relative difference to eager {self.difference:.1e}"
        return f"{self.path}: {self.bytes / 1e6:.1f} MB, {self.operators} operators{opset}, {agreement}"


def export(
    model: nn.Module,
    path: str | PathLike[str],
    format: Literal["onnx", "pt2"] | None = None,  # noqa: A002
    *,
    size: int | tuple[int, int] | None = None,
    in_chans: int | None = None,
    tell: Callable[[str], None] = lambda stage: None,
) -> Exported:
    """Write a network in eval mode as a file that takes a batch of any size.

    Args:
        model: takes images (b, c, i, j) in float32, or the `example_inputs` of our other networks; returns one tensor.
        path: of the file. Nothing else is written, and a failure leaves an older file as it was.
        format: by default the extension of the file.
        size: of the images, one number for squares, or of other inputs; that of the configuration by default.
        in_chans: of the images; `model.config.in_chans` by default, or 3 for a model without it.
        tell: is called with the next step, because exporting a ResNet-50 takes half a minute.

    Outputs may differ from the network's by the tolerance of the format. If the rounding errors of a deep network in
    float32, compared with float64, are larger than that, outputs may differ by twice those errors, up to 1e-3.

    Raises:
        ExportError: if other programs lack some of the operators, or the file computes other outputs.
    """
    path = Path(path)
    target = read_format(path, format)
    inputs, names = read_inputs(model, size, in_chans)
    check_dtypes(model)
    for package in target.needs:
        import_module(package)
    with evaluating(model), torch.no_grad(), atomic_path(path) as temporary:
        # First, because the network's own errors are clearer than those of tracing it.
        expected = {b: model(*inputs(b)) for b in CHECKED_BATCHES}
        if not all(isinstance(y, Tensor) for y in expected.values()):
            raise ValueError(f"model must answer with one tensor, got {type(expected[1]).__name__}")
        tell("tracing the network")
        program = trace(model, inputs(TRACED_BATCH))
        tell("writing the file")
        written = target.write(program, temporary, names)
        tell("comparing it with the network")
        difference = max(relative_difference(written.run(*inputs(b)), y) for b, y in expected.items())
        if not difference <= target.tolerance:  # also if it is NaN
            exact = deepcopy(model).cpu().double()
            rounding = max(relative_difference(y, exact(*map(in_double, inputs(b)))) for b, y in expected.items())
            # Each may be off by the rounding error, in opposite directions.
            if not difference <= min(2 * rounding, ROUGHEST):
                raise ExportError(
                    f"{path.name} would differ from the network by {difference:.1e} of the largest output; "
                    f"{target.tolerance:.0e} is allowed, or twice the network's own rounding, which is {rounding:.1e}, "
                    f"up to {ROUGHEST:.0e}"
                )
        size_of_file = temporary.stat().st_size
    return Exported(path, size_of_file, written.operators, written.opset, difference)


def read_inputs(
    model: nn.Module, size: int | tuple[int, int] | None, in_chans: int | None
) -> tuple[MakeInputs, list[str]]:
    """Reproducible inputs of a network, and their names."""
    if not isinstance(model, Network) or isinstance(model.config, ImageConfig):
        shape = read_shape(model, size, in_chans)
        device = next(model.parameters(), torch.empty(0)).device

        def images(b: int) -> tuple[Tensor, ...]:
            return (torch.randn(b, *shape, generator=torch.Generator().manual_seed(b)).to(device),)

        return images, ["images"]
    if in_chans is not None:
        raise ValueError(f"in_chans is for networks that take images, got in_chans={in_chans}, {type(model).__name__}")

    def examples(b: int) -> tuple[Tensor, ...]:
        with torch.random.fork_rng():
            torch.manual_seed(b)
            return model.example_inputs(b, size)

    return examples, list(signature(model.forward).parameters)[: len(examples(1))]


def in_double(x: Tensor) -> Tensor:
    return x.cpu().double() if x.is_floating_point() else x.cpu()


def read_shape(model: nn.Module, size: int | tuple[int, int] | None, in_chans: int | None) -> tuple[int, int, int]:
    """The shape of one image."""
    config = getattr(model, "config", None)
    size = getattr(config, "image_size", None) if size is None else size
    if size is None:
        raise ValueError(f"size must be given for {type(model).__name__}, which has no config.image_size")
    i, j = per_axis("export", 2, size=size)
    c = getattr(config, "in_chans", 3) if in_chans is None else in_chans
    positive("export", in_chans=c)
    return c, i, j


def check_dtypes(model: nn.Module) -> None:
    """Other programs may lack operators for other dtypes."""
    tensors = (*model.parameters(), *model.buffers())
    if any(t.is_meta for t in tensors):
        raise ValueError("model must have weights, got one on the meta device")
    others = {str(t.dtype) for t in tensors if t.is_floating_point() and t.dtype != torch.float32}
    if others:
        raise ValueError(f"model must be in float32, got {', '.join(sorted(others))}; model.float() converts it")


def trace(model: nn.Module, inputs: tuple[Tensor, ...]) -> ExportedProgram:
    """The graph of a network for a batch of any size, with torch's own operators only."""
    b = torch.export.Dim("b", min=1)
    program = torch.export.export(model, inputs, dynamic_shapes=tuple({0: b} for _ in inputs))
    foreign = {str(target) for target in calls(program) if not is_standard(target)}
    if foreign:
        raise ExportError(f"the graph has operators that are not torch's own: {', '.join(sorted(foreign))}")
    return program


def calls(program: ExportedProgram) -> list[object]:
    """The functions that a graph and its subgraphs call."""
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return [node.target for graph in graphs for node in graph.nodes if node.op == "call_function"]


def is_standard(target: object) -> bool:
    """An aten operator, or arithmetic with sizes."""
    if isinstance(target, OpOverload):
        return target.namespace == "aten"
    return getattr(target, "__module__", None) in ("_operator", "builtins", "math", "torch")


def relative_difference(y: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected value; 0 if both are zero."""
    y = y.to(expected)
    return 0.0 if torch.equal(y, expected) else ((y - expected).abs().max() / expected.abs().max()).item()


class Written(NamedTuple):
    """A file that was read back."""

    run: Callable[..., Tensor]
    operators: int
    opset: int | None


def write_pt2(program: ExportedProgram, path: Path, names: list[str]) -> Written:
    packed = io.BytesIO()  # on a full disk, torch's own writer would abort the process
    torch.export.save(program, packed)
    path.write_bytes(packed.getbuffer())
    with path.open("rb") as file:  # torch.export.load expects paths to end with .pt2
        loaded = torch.export.load(file)
    return Written(loaded.module(), len(calls(loaded)), None)


def write_onnx(program: ExportedProgram, path: Path, names: list[str]) -> Written:
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    weights = sum(t.nbytes for t in program.state_dict.values())
    if weights > LARGEST_ONNX:
        raise ExportError(f"{weights / 2**30:.1f} GB of weights do not fit into a single ONNX file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about itself
        try:
            torch.onnx.export(
                program,
                (),
                path,
                dynamo=True,
                verbose=False,
                external_data=False,
                dynamic_shapes=tuple({0: "b"} for _ in names),
                input_names=names,
                output_names=["output"],
            )
        except torch.onnx.errors.OnnxExporterError as error:
            cause = str(error.__cause__ or error).partition("\n")[0]  # torch's advice and the whole graph follow
            raise ExportError(f"torch has no ONNX for this network, pt2 may do: {cause}") from error
    model = onnx.load(path)
    nodes = list(onnx_nodes(model))
    foreign = {f"{node.domain}.{node.op_type}" for node in nodes if node.domain}
    if foreign:
        raise ExportError(f"the graph has operators that are not ONNX's own: {', '.join(sorted(foreign))}")
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(*inputs: Tensor) -> Tensor:
        arrays = {name: x.cpu().numpy() for name, x in zip(names, inputs, strict=True)}
        (output,) = session.run(None, arrays)
        return torch.from_numpy(output)

    return Written(run, len(nodes), next(opset.version for opset in model.opset_import if not opset.domain))


def onnx_nodes(model: Any) -> Iterator[Any]:
    """The nodes of an ONNX model: of its graph, of graphs inside nodes, and of its functions."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):  # an absent graph has no nodes
                waiting.extend(inner.node)


class Format(NamedTuple):
    """How a file is written, and the tolerance of its outputs."""

    write: Callable[[ExportedProgram, Path, list[str]], Written]  # the last are the names of inputs
    tolerance: float
    needs: tuple[str, ...] = ()


FORMATS = {
    # Another runtime sums in other orders.
    "onnx": Format(write_onnx, 1e-4, needs=("onnx", "onnxscript", "onnxruntime")),
    "pt2": Format(write_pt2, 1e-5),
}


def read_format(path: Path, name: str | None) -> Format:
    """The requested format, or that of the file's extension; errors come before the work begins."""
    if not can_be_written(path):
        raise ValueError(f"path must be a file in a folder that can be written to, got {path}")
    if name is None and path.suffix[1:] not in FORMATS:
        raise ValueError(f"without a format, path must end with .onnx or .pt2, got {path}")
    chosen = path.suffix[1:] if name is None else name
    if chosen not in FORMATS:
        raise ValueError(f"format must be onnx or pt2, got format={name!r}")
    return FORMATS[chosen]
