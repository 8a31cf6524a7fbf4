"""Texts become HTML in the templates of the report, and drawings are part of the page."""

import pytest

from chaosity.errors import UserError
from chaosity.figures.figure_files import FigureFile
from chaosity.report.html import figure_section, svg_as_image


@pytest.mark.parametrize(("marks", "start"), [(3, "<svg"), (3001, "<img")])
def test_a_figure_of_very_many_marks_is_a_picture_in_the_page(marks, start, tmp_path):
    svg = '<svg viewBox="0 0 48 30">' + '<path class="mark"/>' * marks + "</svg>"
    (tmp_path / "a.svg").write_text(svg)
    (tmp_path / "a.png").write_bytes(b"PNG")
    file = FigureFile("a", "", "heatmap", "", "", None, None, svg="a.svg", png="a.png")
    shown = figure_section(file, tmp_path)
    assert shown.svg.startswith(start)
    assert shown.width_pixels == 80


def test_a_drawing_of_another_program_is_an_image_so_that_its_scripts_cannot_run():
    image = svg_as_image(b"<svg><script>alert(1)</script></svg>\n", "a & b", "topology.svg")
    assert image.startswith('<img alt="a &amp; b" src="data:image/svg+xml;base64,')
    assert "script" not in image


@pytest.mark.parametrize("text", [b"", b"no xml", b"<html/>", b"<svg"])
def test_a_file_that_is_not_svg_is_an_error(text):
    with pytest.raises(UserError, match=r"topology\.svg.*not an SVG file"):
        svg_as_image(text, "topology", "topology.svg")
