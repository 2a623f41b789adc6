"""Networks as files that other programs run: ONNX, and torch's own pt2.

Whatever plan computes a layer here, files hold standard operators only, so that they need none of our kernels. No file
takes its name before it has been read back, run, and found equal to the network.
"""

import io
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from lambdanets.compat import OpOverload
from lambdanets.files import atomic_path, can_be_written
from lambdanets.nn.arguments import per_axis, positive
from lambdanets.nn.modes import evaluating

TRACED_BATCH = 2  # torch would take a size of 1 for one that never changes
CHECKED_BATCHES = (1, 5)
# Beyond this, torch writes the weights of an ONNX graph into a second file.
LARGEST_ONNX = 1536 * 2**20


# A network that magnifies rounding beyond this says nothing about its file.
ROUGHEST = 1e-3


class ExportError(RuntimeError):
    """What was exported is not what was asked for; no file has been written."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how well it agrees with the network."""

    path: Path
    bytes: int
    operators: int  # nodes of the graph
    opset: int | None  # of ONNX, None for pt2
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
    """Write a network in eval mode as a file that takes any number of images of one size.

    Args:
        model: takes images (b, c, i, j) in float32 and answers with one tensor.
        path: of the file. Nothing else is written, and a failure leaves what was there.
        format: by default what the name of the file ends with.
        size: of the images, one number for squares; `model.config.image_size` by default.
        in_chans: of the images; `model.config.in_chans` by default, and 3 for a model without.
        tell: is told what happens next, as it takes half a minute for a ResNet-50.

    Outputs may differ from the network's by the tolerance of the format. Those of a deep network whose own rounding in
    float32 is larger than that, which float64 shows, may differ by twice its rounding, up to 1e-3.

    Raises:
        ExportError: if there are operators that other programs lack, or outputs that are not the network's.
    """
    path = Path(path)
    target = read_format(path, format)
    shape = read_shape(model, size, in_chans)
    check_dtypes(model)
    for package in target.needs:
        import_module(package)
    device = next(model.parameters(), torch.empty(0)).device

    def images(b: int) -> Tensor:
        return torch.randn(b, *shape, generator=torch.Generator().manual_seed(b)).to(device)

    with evaluating(model), torch.no_grad(), atomic_path(path) as temporary:
        # First, as the network's own errors are clearer than those of its tracing.
        expected = {b: model(images(b)) for b in CHECKED_BATCHES}
        if not all(isinstance(y, Tensor) for y in expected.values()):
            raise ValueError(f"model must answer with one tensor, got {type(expected[1]).__name__}")
        tell("tracing the network")
        program = trace(model, images(TRACED_BATCH))
        tell("writing the file")
        written = target.write(program, temporary)
        tell("comparing it with the network")
        difference = max(relative_difference(written.run(images(b)), y) for b, y in expected.items())
        if not difference <= target.tolerance:  # nan is not
            exact = deepcopy(model).cpu().double()
            rounding = max(relative_difference(y, exact(images(b).cpu().double())) for b, y in expected.items())
            # Both may be so far from the truth, on different sides.
            if not difference <= min(2 * rounding, ROUGHEST):
                raise ExportError(
                    f"{path.name} would differ from the network by {difference:.1e} of the largest output; "
                    f"{target.tolerance:.0e} is allowed, or twice the network's own rounding, which is {rounding:.1e}, "
                    f"up to {ROUGHEST:.0e}"
                )
        size_of_file = temporary.stat().st_size
    return Exported(path, size_of_file, written.operators, written.opset, difference)


def read_shape(model: nn.Module, size: int | tuple[int, int] | None, in_chans: int | None) -> tuple[int, int, int]:
    """Of one image."""
    config = getattr(model, "config", None)
    size = getattr(config, "image_size", None) if size is None else size
    if size is None:
        raise ValueError(f"size must be given for {type(model).__name__}, which has no config.image_size")
    i, j = per_axis("export", 2, size=size)
    c = getattr(config, "in_chans", 3) if in_chans is None else in_chans
    positive("export", in_chans=c)
    return c, i, j


def check_dtypes(model: nn.Module) -> None:
    """Other precisions have other operators in other programs, or none."""
    tensors = (*model.parameters(), *model.buffers())
    if any(t.is_meta for t in tensors):
        raise ValueError("model must have weights, got one on the meta device")
    others = {str(t.dtype) for t in tensors if t.is_floating_point() and t.dtype != torch.float32}
    if others:
        raise ValueError(f"model must be in float32, got {', '.join(sorted(others))}; model.float() converts it")


def trace(model: nn.Module, images: Tensor) -> ExportedProgram:
    """The graph of a network for any batch, with operators that every torch has."""
    program = torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim("b", min=1)},))
    foreign = {str(target) for target in calls(program) if not is_standard(target)}
    if foreign:
        raise ExportError(f"the graph has operators that are not torch's own: {', '.join(sorted(foreign))}")
    return program


def calls(program: ExportedProgram) -> list[object]:
    """What a graph and its subgraphs call."""
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return [node.target for graph in graphs for node in graph.nodes if node.op == "call_function"]


def is_standard(target: object) -> bool:
    """An aten operator, or arithmetic with sizes."""
    if isinstance(target, OpOverload):
        return target.namespace == "aten"
    return getattr(target, "__module__", None) in ("_operator", "builtins", "math", "torch")


def relative_difference(y: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest of what is expected; equal zeros do not differ."""
    y = y.to(expected)
    return 0.0 if torch.equal(y, expected) else ((y - expected).abs().max() / expected.abs().max()).item()


class Written(NamedTuple):
    """A file as it was read back."""

    run: Callable[[Tensor], Tensor]
    operators: int
    opset: int | None


def write_pt2(program: ExportedProgram, path: Path) -> Written:
    packed = io.BytesIO()  # on a full disk, torch's own writer would end the process
    torch.export.save(program, packed)
    path.write_bytes(packed.getbuffer())
    with path.open("rb") as file:  # of a path, torch expects that it ends with .pt2
        loaded = torch.export.load(file)
    return Written(loaded.module(), len(calls(loaded)), None)


def write_onnx(program: ExportedProgram, path: Path) -> Written:
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
                dynamic_shapes=({0: "b"},),
                input_names=["images"],
                output_names=["output"],
            )
        except torch.onnx.errors.OnnxExporterError as error:
            cause = str(error.__cause__ or error).partition("\n")[0]  # behind it torch's advice, and the whole graph
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

    def run(images: Tensor) -> Tensor:
        (output,) = session.run(None, {"images": images.cpu().numpy()})
        return torch.from_numpy(output)

    return Written(run, len(nodes), next(opset.version for opset in model.opset_import if not opset.domain))


def onnx_nodes(model: Any) -> Iterator[Any]:
    """The nodes of an ONNX model: of the graph, of the graphs inside its nodes, and of its functions."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):  # a graph that is not there has no nodes
                waiting.extend(inner.node)


class Format(NamedTuple):
    """How a file is written, and how far its outputs may be from the network's."""

    write: Callable[[ExportedProgram, Path], Written]
    tolerance: float
    needs: tuple[str, ...] = ()


FORMATS = {
    # Another runtime adds up in other orders.
    "onnx": Format(write_onnx, 1e-4, needs=("onnx", "onnxscript", "onnxruntime")),
    "pt2": Format(write_pt2, 1e-5),
}


def read_format(path: Path, name: str | None) -> Format:
    """The format asked for, or that of the file; mistakes are found before the work begins."""
    if not can_be_written(path):
        raise ValueError(f"path must be a file in a folder that can be written to, got {path}")
    if name is None and path.suffix[1:] not in FORMATS:
        raise ValueError(f"without a format, path must end with .onnx or .pt2, got {path}")
    asked = path.suffix[1:] if name is None else name
    if asked not in FORMATS:
        raise ValueError(f"format must be onnx or pt2, got format={name!r}")
    return FORMATS[asked]
