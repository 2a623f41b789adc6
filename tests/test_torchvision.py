"""torchvision runs beside a torch for CPUs, and the tool that sees to it refuses what it does not know."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import torch
import torchvision

spec = importlib.util.spec_from_file_location(
    "fix_torchvision_cpu", Path(__file__).resolve().parents[1] / "tools" / "fix_torchvision_cpu.py"
)
fix_torchvision_cpu = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = fix_torchvision_cpu
spec.loader.exec_module(fix_torchvision_cpu)


def test_compiled_operators_run():
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 30.0]])
    kept = torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5)
    assert kept.tolist() == [1, 2]
    ramp = torch.arange(64.0).view(1, 1, 8, 8).requires_grad_()
    pooled = torchvision.ops.roi_align(ramp, [torch.tensor([[0.0, 0.0, 8.0, 8.0]])], 1, aligned=True)
    assert pooled.item() == pytest.approx(31.5)
    pooled.sum().backward()
    assert ramp.grad.sum().item() == pytest.approx(1.0)


def test_images_are_read_and_written(tmp_path):
    picture = torch.arange(3 * 5 * 7, dtype=torch.uint8).view(3, 5, 7)
    torchvision.io.write_png(picture, str(tmp_path / "picture.png"))
    assert torch.equal(torchvision.io.decode_image(str(tmp_path / "picture.png")), picture)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA, nothing was changed")
@pytest.mark.parametrize("name", fix_torchvision_cpu.LIBRARIES)
def test_a_library_that_was_changed_stays_as_it_is(tmp_path, name):
    library = tmp_path / name
    shutil.copy(Path(torchvision.__file__).parent / name, library)
    before = library.read_bytes()
    fix_torchvision_cpu.fix(library)
    assert library.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert not fix_torchvision_cpu.ABSENT & needed(before)


def needed(content):
    library = fix_torchvision_cpu.Library(content)
    entries = [entry for entry in library.entries if entry.tag == fix_torchvision_cpu.DT_NEEDED]
    return {library._string(entry.value) for entry in entries}


def test_other_files_are_refused(tmp_path):
    other = tmp_path / "_C.so"
    other.write_bytes(b"MZ and something else")
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        fix_torchvision_cpu.fix(other)
    assert other.read_bytes() == b"MZ and something else"


def test_a_run_path_without_room_is_refused():
    library = fix_torchvision_cpu.Library((Path(torchvision.__file__).parent / "_C.so").read_bytes())
    if not any(entry.tag == fix_torchvision_cpu.DT_RPATH for entry in library.entries):
        pytest.skip("this wheel has no run path")
    with pytest.raises(ValueError, match="no room for"):
        library.look_for_libraries_in(b"/a" * 2000)
