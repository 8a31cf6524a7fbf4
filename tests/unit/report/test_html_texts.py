"""Texts become HTML in the templates of the report."""

from markupsafe import Markup

from chaosity.report.html_pages_and_inline_svg import text_as_html


def test_numbers_stay_beside_their_signs_and_words_in_backticks_are_code():
    expected = "n\xa0=\xa03, 5\xa0% of <code>a&lt;b</code>"
    assert text_as_html("n = 3, 5 % of `a<b`") == expected


def test_drawings_and_numbers_are_unchanged():
    drawing = Markup("<svg>`5 %`</svg>")
    assert text_as_html(drawing) is drawing
    assert text_as_html(3) == 3
