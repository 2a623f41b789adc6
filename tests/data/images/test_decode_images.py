"""Every kind of image becomes what it looks like; whatever is none becomes BadItemError, and nothing else happens."""

import pickle
import random
import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from pictures import SIZE, encoded, noise, picture
from PIL import Image, ImageCms, PngImagePlugin

from lambdanets.data.images.decode import FORMATS, decode
from lambdanets.data.splits import BadItemError


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def colours(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).permute(2, 0, 1)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_pixels_are_those_of_the_file(kind, tmp_path):
    (tmp_path / "image").write_bytes(picture(3, kind))
    for content in (picture(3, kind), tmp_path / "image"):
        assert torch.equal(decode(content, "image", 3), colours(noise(3)))


@pytest.mark.parametrize("kind", [*FORMATS, "MPO"])
def test_grey_and_colours_of_every_format(kind):
    image = Image.new("RGB", SIZE, (200, 30, 60))
    content = encoded(image, kind)
    expected = torch.tensor([200, 30, 60]).view(3, 1, 1).expand(3, 11, 13)
    assert torch.allclose(decode(content, "x", 3).long(), expected, atol=4)  # some formats are lossy
    assert torch.allclose(decode(content, "x", 1).long(), torch.full((1, 11, 13), 84), atol=4)


def test_other_colour_spaces():
    red = Image.new("RGB", SIZE, (200, 30, 60))
    lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    for image, kind in [
        (ImageCms.applyTransform(red, lab), "TIFF"),
        (red.convert("YCbCr"), "TIFF"),
        (red.convert("CMYK"), "TIFF"),
        (red.convert("CMYK"), "JPEG"),
        (red.quantize(), "PNG"),
        (red.quantize(), "GIF"),
    ]:
        assert image.mode in ("LAB", "YCbCr", "CMYK", "P")
        found = decode(encoded(image, kind), image.mode, 3)[:, 5, 5].tolist()
        assert found == pytest.approx([200, 30, 60], abs=3), image.mode
        assert int(decode(encoded(image, kind), image.mode, 1)[0, 5, 5]) == pytest.approx(84, abs=3)


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_are_scaled(channels):
    values = noise(1, (11, 13), np.uint16)
    values.flat[:4] = 0, 128, 129, 65535
    big = Image.frombytes("I;16B", SIZE, values.astype(">u2").tobytes())
    wide = Image.fromarray(values.astype(np.int32))
    assert wide.mode == "I"
    pgm = b"P5 13 11 65535 " + values.astype(">u2").tobytes()
    little = Image.fromarray(values)
    for content in (encoded(little), encoded(little, "TIFF"), encoded(big, "TIFF"), encoded(wide, "TIFF"), pgm):
        expected = torch.from_numpy(np.rint(values / 257).astype(np.uint8)).expand(channels, 11, 13)
        assert torch.equal(decode(content, "x", channels), expected)


@pytest.mark.parametrize("value", [-1, 65536])
def test_integers_of_unknown_range(value):
    image = Image.fromarray(np.array([[0, value]], dtype=np.int32))
    with pytest.raises(BadItemError, match=f"{min(0, value)} to {max(0, value)}, not from 0 to 65535"):
        decode(encoded(image, "TIFF"), "x", 1)


def test_floating_point():
    with pytest.raises(BadItemError, match=r"x\.tif: its pixels are floating-point"):
        decode(encoded(Image.new("F", SIZE, 0.5), "TIFF"), "x.tif", 3)


def test_one_bit_and_one_pixel():
    image = Image.fromarray(noise(2, (11, 13)) > 127)
    assert image.mode == "1"
    assert torch.equal(decode(encoded(image), "x", 1), torch.from_numpy(np.array(image))[None].byte() * 255)
    assert decode(encoded(Image.new("RGB", (1, 1), (1, 2, 3))), "x", 3).flatten().tolist() == [1, 2, 3]


def on_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.rint((colour * alpha + 255.0 * (255 - alpha)) / 255).astype(np.uint8)


def test_alpha_is_on_white():
    rgba = noise(4, (11, 13, 4))
    rgba[0, :, 3], rgba[1, :, 3] = 0, 255
    found = decode(encoded(Image.fromarray(rgba)), "x", 3)
    assert torch.equal(found, colours(on_white(rgba[..., :3].astype(float), rgba[..., 3:].astype(float))))
    assert found[:, 0].eq(255).all()
    grey = noise(5, (11, 13, 2))
    expected = on_white(grey[..., 0].astype(float), grey[..., 1].astype(float))
    assert torch.equal(decode(encoded(Image.fromarray(grey, "LA")), "x", 1)[0], torch.from_numpy(expected))


def test_transparent_colours_are_white():
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    for content in (encoded(palette, transparency=0), encoded(palette, "GIF", transparency=0)):
        assert decode(content, "x", 3)[:, 0].T.tolist() == [[255, 255, 255], [40, 50, 60]]
    some = encoded(palette, transparency=bytes([0, 128]))
    assert decode(some, "x", 3)[:, 0].T.tolist() == [[255] * 3, [147, 152, 157]]
    rgb = Image.fromarray(np.array([[[10, 20, 30], [40, 50, 60]]], dtype=np.uint8))
    assert decode(encoded(rgb, transparency=(10, 20, 30)), "x", 3)[:, 0].T.tolist() == [[255] * 3, [40, 50, 60]]
    deep = Image.fromarray(np.array([[257, 514]], dtype=np.uint16))
    content, chunk = encoded(deep), b"tRNS" + struct.pack(">H", 257)  # which Pillow does not write
    chunk = struct.pack(">I", 2) + chunk + struct.pack(">I", zlib.crc32(chunk))
    place = content.index(b"IDAT") - 4
    assert decode(content[:place] + chunk + content[place:], "x", 1).tolist() == [[[255, 2]]]


def test_animations_show_their_first_frame():
    first, second = Image.new("RGB", SIZE, (250, 0, 0)), Image.new("RGB", SIZE, (0, 0, 250))
    for kind in ("GIF", "PNG", "WEBP", "TIFF", "MPO"):
        content = encoded(first, kind, save_all=True, append_images=[second])
        red, _, blue = decode(content, kind, 3)[:, 5, 5].tolist()
        assert red > 240
        assert blue < 10


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(kind, orientation):
    """A black quarter in the upper left corner goes where the camera saw it."""
    image = Image.new("L", (32, 16), 255)
    image.paste(0, (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = decode(encoded(image.convert("RGB"), kind, exif=exif), "x", 1)[0]
    assert found.shape == ((16, 32) if orientation < 5 else (32, 16))
    dark = found[: found.shape[0] // 2].float().mean() < found[found.shape[0] // 2 :].float().mean()
    left = found[:, : found.shape[1] // 2].float().mean() < found[:, found.shape[1] // 2 :].float().mean()
    corners = {1: (1, 1), 2: (1, 0), 3: (0, 0), 4: (0, 1), 5: (1, 1), 6: (1, 0), 7: (0, 0), 8: (0, 1)}
    assert (int(dark), int(left)) == corners[orientation]


def test_damaged_exif_costs_no_picture():
    content = encoded(Image.fromarray(noise(6)), "PNG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01")
    assert torch.equal(decode(content, "x", 3), colours(noise(6)))


@pytest.mark.parametrize("kind", [*FORMATS, "MPO"])
def test_truncated(kind):
    content = picture(7, kind)
    for tenth in range(10):
        with pytest.raises(BadItemError) as caught:
            decode(content[: len(content) * tenth // 10], "cut", 3)
        assert caught.value.name == "cut"
        assert "\n" not in caught.value.reason
        assert "0x" not in caught.value.reason


def test_files_that_are_no_images(tmp_path):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "link.jpg").symlink_to(tmp_path / "nothing")
    for name, reason in {
        "empty.jpg": "empty",
        "text.jpg": "not one of JPEG",
        "folder.jpg": "directory",
        "link.jpg": "No such file",
        "absent.jpg": "No such file",
    }.items():
        with pytest.raises(BadItemError, match=reason):
            decode(tmp_path / name, name, 3)


def test_unreadable_file(tmp_path, monkeypatch):
    """Root may read everything, so this is said by the file system instead."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "x").touch()
    monkeypatch.setattr(type(tmp_path), "open", refuse)
    with pytest.raises(BadItemError, match=r"^x: Permission denied$"):
        decode(tmp_path / "x", "x", 3)


def test_bad_images_survive_the_way_from_a_worker():
    with pytest.raises(BadItemError) as caught:
        decode(b"", "x", 3)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def png(width: int, height: int, *extra: tuple[bytes, bytes]) -> bytes:
    """Of a size that is only claimed."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("size", [(9460, 9460), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_claimed_pixels_are_not_allocated(size, monkeypatch):
    """The first is where Pillow only warns."""
    monkeypatch.setattr(Image.core, "new", pytest.fail)
    with pytest.raises(BadItemError, match="pixels"):
        decode(png(*size), "bomb", 3)
    bmp = bytearray(picture(0, "BMP"))
    bmp[18:26] = struct.pack("<ii", *size)
    with pytest.raises(BadItemError, match="pixels"):
        decode(bytes(bmp), "bomb", 3)
    with pytest.raises(BadItemError, match="pixels"):
        decode(f"P5 {size[0]} {size[1]} 255 ".encode(), "bomb", 3)


def test_notes_that_unpack_to_a_lot():
    lots = zlib.compress(bytes(PngImagePlugin.MAX_TEXT_CHUNK + 1), 9)
    for kind in (b"zTXt", b"iCCP"):
        with pytest.raises(BadItemError, match="too large"):
            decode(png(10, 10, (kind, b"note\0\0" + lots)), "bomb", 3)


def test_no_pixels():
    with pytest.raises(BadItemError):
        decode(b"P5 0 3 255 ", "none", 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_mutations(kind):
    """Only an image or BadItemError comes out. (Compressed TIFFs are left out: libtiff would fill the terminal.)"""
    content, generator = picture(8, kind), random.Random(kind)
    for _ in range(100):
        changed = bytearray(content)
        for _ in range(generator.choice([1, 2, 10])):
            place = generator.randrange(generator.choice([min(64, len(changed)), len(changed)]))
            changed[place] = generator.randrange(256)
        try:
            image = decode(bytes(changed), "changed", 3)
        except BadItemError:
            continue
        assert image.dtype == torch.uint8
        assert image.shape[0] == 3
