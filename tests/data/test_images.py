import io

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from paiq.data.images import inside, read_image
from paiq.errors import ConfigError, DataError

RED, GREEN, BLUE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (120, 120, 120)


def encoded(image, form, **settings):
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()


def corners(image):
    w, h = image.size
    return [image.getpixel(at) for at in ((0, 0), (w - 1, 0), (0, h - 1), (w - 1, h - 1))]


def four_corners(mode="RGB"):
    image = Image.new("RGB", (24, 16), GREY)
    for box, colour in (((0, 0), RED), ((16, 0), GREEN), ((0, 8), BLUE)):
        image.paste(colour, (*box, box[0] + 8, box[1] + 8))
    return image.convert(mode)


def close(found, wanted, tolerance=0):
    return all(abs(a - b) <= tolerance for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_as_pillow_turns_it(form, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(four_corners(), form, exif=exif, quality=95)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
    found = read_image(content)
    assert found.size == ((24, 16) if orientation < 5 else (16, 24))
    assert found.tobytes() == expected.tobytes()


def test_an_orientation_turns_the_corner_where_a_person_expects_it():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera stood on its right side: turn clockwise
    found = read_image(encoded(four_corners(), "PNG", exif=exif))
    assert corners(found) == [BLUE, RED, GREY, GREEN]


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("damage", ["value", "cut", "noise"])
def test_a_damaged_orientation_counts_as_upright(damage):
    exif = Image.Exif()
    exif[0x0112] = 9 if damage == "value" else 6
    block = exif.tobytes()
    block = {"value": block, "cut": block[:20], "noise": b"Exif\0\0" + b"\x07" * 30}[damage]
    assert read_image(encoded(four_corners(), "JPEG", exif=block)).size == (24, 16)


def test_cmyk_keeps_its_colours():
    found = read_image(encoded(four_corners("CMYK"), "JPEG", quality=100))
    assert found.mode == "RGB"
    assert all(
        close(*pair, tolerance=12)
        for pair in zip(corners(found), [RED, GREEN, BLUE, GREY], strict=True)
    )


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(form):
    values = np.linspace(0, 65535, 64 * 4).astype(np.uint16).reshape(4, 64)
    found = read_image(encoded(Image.fromarray(values), form))
    assert np.array_equal(np.asarray(found)[..., 0], values >> 8)
    assert found.mode == "RGB"


def test_palette_and_grey_become_rgb():
    assert corners(read_image(encoded(four_corners("P"), "PNG")))[0] == RED
    grey = Image.new("L", (4, 4), 77)
    assert read_image(encoded(grey, "PNG")).getpixel((0, 0)) == (77, 77, 77)
    assert read_image(encoded(Image.new("1", (4, 4), 1), "PNG")).getpixel((0, 0)) == (255,) * 3


def test_alpha_lies_on_white_or_on_the_background_asked_for():
    image = Image.new("RGBA", (2, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    content = encoded(image, "PNG")
    assert [read_image(content).getpixel((x, 0)) for x in (0, 1)] == [(255,) * 3, (200, 0, 0)]
    assert read_image(content, background=(1, 2, 3)).getpixel((0, 0)) == (1, 2, 3)


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_a_transparent_colour_lies_on_white(mode):
    image = Image.new(mode, (4, 4), 0)
    see_through = (0, 0, 0) if mode == "RGB" else 0
    content = encoded(image, "PNG", transparency=see_through)
    assert read_image(content).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_refused_unless_its_first_frame_is_asked_for(form):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, GREEN)]
    content = encoded(frames[0], form, save_all=True, append_images=frames[1:], lossless=True)
    with pytest.raises(DataError, match=r"cats.gif has 3 frames"):
        read_image(content, "cats.gif")
    assert read_image(content, first_frame=True).getpixel((3, 3)) == RED


def test_a_phones_two_pictures_in_one_jpeg_are_one_photo():
    content = encoded(four_corners(), "MPO", save_all=True, append_images=[four_corners()])
    assert read_image(content).size == (24, 16)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000"])
def test_a_truncated_file_is_refused_by_name(form, tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = encoded(Image.fromarray(noise), form)
    path = tmp_path / "cut.img"
    for part in (0.3, 0.6, 0.9):
        path.write_bytes(content[: int(len(content) * part)])
        with pytest.raises(DataError, match=r"cut.img"):
            read_image(path)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "AVIF"])
def test_flipped_bytes_give_an_image_or_a_data_error_and_nothing_else(form):
    content = encoded(four_corners(), form)
    generator = np.random.default_rng(1)
    outcomes = set()
    for _ in range(60):
        broken = bytearray(content)
        for at in generator.integers(0, len(broken), 5):
            broken[at] = generator.integers(0, 256)
        try:
            outcomes.add(read_image(bytes(broken)).mode)
        except DataError as error:
            outcomes.add("refused" if str(error).startswith("image") else str(error))
    assert "refused" in outcomes <= {"RGB", "refused"}


@pytest.mark.parametrize(
    "content", [b"<svg/>", b"%!PS-Adobe-3.0 EPSF-3.0", b"\x00" * 500, b"GIF8", "héllo".encode()]
)
def test_what_is_no_image_is_refused(content):
    with pytest.raises(DataError, match=r"no image we read"):
        read_image(content)


def test_an_empty_missing_or_wrong_kind_of_file_is_refused_by_name(tmp_path):
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(DataError, match=r"empty.jpg is empty"):
        read_image(tmp_path / "empty.jpg")
    with pytest.raises(DataError, match=r"gone.jpg does not exist"):
        read_image(tmp_path / "gone.jpg")
    with pytest.raises(DataError, match=r"is no file"):
        read_image(tmp_path)


def test_a_bomb_is_refused_before_it_fills_the_memory():
    content = encoded(Image.new("1", (9000, 9000)), "PNG")
    assert len(content) < 20_000
    with pytest.raises(DataError, match=r"9000 x 9000 pixels"):
        read_image(content)
    assert read_image(content[:], most_pixels=81_000_000).size == (9000, 9000)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_that_pillow_itself_refuses_is_a_data_error_too():
    with pytest.raises(DataError, match=r"bomb"):
        read_image(encoded(Image.new("1", (20000, 20000)), "PNG"))


def test_floating_point_pixels_are_refused():
    with pytest.raises(DataError, match=r"floating-point"):
        read_image(encoded(Image.new("F", (4, 4), 0.5), "TIFF"))


def test_more_than_sixteen_bits_are_refused():
    with pytest.raises(DataError, match=r"more than 16 bits"):
        read_image(encoded(Image.new("I", (4, 4), 70_000), "TIFF"))


def test_leniency_that_another_library_switched_on_is_noticed(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ConfigError, match=r"LOAD_TRUNCATED_IMAGES"):
        read_image(encoded(four_corners(), "PNG"))


@pytest.mark.parametrize(
    "relative",
    [
        "../secret.jpg",
        "a/../../secret.jpg",
        "/etc/passwd",
        "",
        "a\0.jpg",
        "..\\secret.jpg",
        "C:\\secret.jpg",
        "\\\\host\\share\\x.jpg",
        "http://169.254.169.254/latest.jpg",
        "https://example.org/x.jpg",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "s3://bucket/x.jpg",
    ],
)
def test_a_path_that_leaves_the_folder_or_an_address_is_refused(tmp_path, relative):
    with pytest.raises(DataError):
        inside(tmp_path / "images", relative)


def test_a_link_that_leaves_the_folder_is_refused_and_one_that_stays_is_not(tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    (tmp_path / "secret.png").write_bytes(encoded(four_corners(), "PNG"))
    (root / "true.png").write_bytes(encoded(four_corners(), "PNG"))
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    (root / "stays.png").symlink_to(root / "true.png")
    with pytest.raises(DataError, match=r"leaves"):
        inside(root, "out.png")
    assert read_image(inside(root, "stays.png")).size == (24, 16)


def test_a_link_in_a_circle_and_an_endless_name_are_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for name in ("a", "x" * 300):
        with pytest.raises(DataError):
            read_image(inside(tmp_path, name))


def test_the_image_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.png").write_bytes(encoded(four_corners(), "PNG"))
    (tmp_path / "images").symlink_to(tmp_path / "disk")
    assert inside(tmp_path / "images", "a.png").read_bytes()
