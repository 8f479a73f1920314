"""Tables that keep their style."""

from kauldron.utils.pd_utils import StyledDataFrame


def test_style_is_kept_and_shown():
    frame = StyledDataFrame({"name": ["<b>", "c"], "loss": [0.25, 1.0]})
    frame.current_style.highlight_min("loss", color="gold")
    assert frame.current_style is frame.current_style
    assert "gold" in frame._repr_html_()
    assert isinstance(frame[frame.loss < 1], StyledDataFrame)
    assert "gold" not in frame[frame.loss < 1]._repr_html_()
