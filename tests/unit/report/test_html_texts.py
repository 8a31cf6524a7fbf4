"""Texts become HTML in the templates of the report, and large pages keep drawings compressed."""

import gzip
from base64 import b64decode

from lxml import html
from markupsafe import Markup

from chaosity.report.html_pages_and_inline_svg import pack_drawings, text_as_html


def test_numbers_stay_beside_their_signs_and_words_in_backticks_are_code():
    expected = "n\xa0=\xa03, 5\xa0% of <code>a&lt;b</code>"
    assert text_as_html("n = 3, 5 % of `a<b`") == expected


def test_drawings_and_numbers_are_unchanged():
    drawing = Markup("<svg>`5 %`</svg>")
    assert text_as_html(drawing) is drawing
    assert text_as_html(3) == 3


def page_with(marks: int) -> str:
    """A page with a drawing of so many marks."""
    svg = '<svg viewBox="0 0 40 30" aria-label="Bandwidth">' + "<g>\n</g>" * marks + "</svg>"
    return f'<main>\n<div class="drawing" style="--width: 60px">{svg}\n</div>\n</main>'


def test_a_large_page_keeps_its_drawings_compressed():
    page = page_with(marks=1_000_000)
    packed = pack_drawings(page)
    assert len(packed) < len(page) / 100
    element = html.fromstring(packed).find("div")
    assert element is not None
    assert element.get("aria-label") == "Bandwidth"
    assert element.get("style") == "--width: 60px; --ratio: 40 / 30"
    svg = gzip.decompress(b64decode(str(element.get("data-packed")))).decode()
    assert svg in page
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")


def test_a_small_page_is_unchanged():
    assert pack_drawings(page_with(marks=3)) == page_with(marks=3)
