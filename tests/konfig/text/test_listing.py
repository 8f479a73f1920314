"""`to_text` and `to_html`."""

import html.parser
import xml.etree.ElementTree as ElementTree

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig

with konfig.imports():
    import fractions


def make_config():
    cfg = konfig.ConfigDict(
        {
            "seed": 0,
            "model": {
                "__qualname__": "flax.linen:Dense",
                "0": 3,
                "sizes": [1, 2],
                "layers": [{"n": 1}],
            },
            "kind": fractions.Fraction,
        }
    )
    cfg.twice = cfg.ref.seed * 2
    cfg.again = cfg.model
    return cfg


# ------------------------------------------------------------------------------------
# Text
# ------------------------------------------------------------------------------------


def test_text_without_history_shows_one_field_per_line():
    assert konfig.to_text(make_config(), history=False) == "\n".join(
        [
            "{",
            "    'seed': 0,",
            "    'model': nn.Dense(",
            "        3,",
            "        sizes=[1, 2],",
            "        layers=[",
            "            {",
            "                'n': 1,",
            "            },",
            "        ],",
            "    ),",
            "    'kind': fractions.Fraction,",
            "    'twice': 0,",
            "    'again': <same as cfg.model>,",
            "}",
        ]
    )


def test_text_tells_where_each_line_was_set():
    cfg = make_config()
    konfig.apply_overrides(cfg, {"seed": 3})
    lines = konfig.to_text(cfg).splitlines()
    assert "# set by seed=3" in lines[1]
    assert "test_listing.py:" in lines[2]
    assert "= (cfg.ref.seed * 2)" in next(line for line in lines if "'twice'" in line)
    assert all("#" in line for line in lines if line.strip(" ,)]}"))


def test_text_tells_of_an_item_that_was_set_by_itself():
    cfg = make_config()
    konfig.apply_overrides(cfg, {"model.sizes[1]": 5})
    (line,) = [
        line for line in konfig.to_text(cfg).splitlines() if "sizes[1]=5" in line
    ]
    assert line.strip().startswith("5,")


def test_text_of_anything_does_not_raise():
    cfg = konfig.ConfigDict({"a": konfig.required(int), "t": (1,), "e": {}})
    cfg.b = cfg.ref.nope
    cfg.c = cfg
    text = konfig.to_text(cfg)
    assert "<required: int>" in text
    assert "<unresolved ref: cfg.nope>" in text
    assert "<same as cfg>" in text
    assert "(1,)" in text


def test_text_without_recording_has_no_origins():
    konfig.set_history(False)
    try:
        text = konfig.to_text(konfig.ConfigDict({"a": 1}))
    finally:
        konfig.set_history(True)
    assert text == "{\n    'a': 1,\n}"


# ------------------------------------------------------------------------------------
# HTML
# ------------------------------------------------------------------------------------


def parse(page):
    """The tree of a page; fails unless it is well-formed."""
    return ElementTree.fromstring(page)


def entries(page):
    """From path to element."""
    found = parse(page).iter()
    return {e.get("data-path"): e for e in found if e.get("data-path") is not None}


def text_of(element):
    return "".join(element.itertext())


def test_page_has_an_entry_for_every_path():
    found = entries(konfig.to_html(make_config()))
    assert set(found) == {
        "",
        "seed",
        "model",
        "model[0]",
        "model.sizes",
        "model.sizes[0]",
        "model.sizes[1]",
        "model.layers",
        "model.layers[0]",
        "model.layers[0].n",
        "kind",
        "twice",
        "again",
    }
    assert text_of(found["seed"]) == "'seed': 0"
    assert "nn.Dense(" in text_of(found["model"])
    assert "cfg.ref.seed * 2" in text_of(found["twice"])


def test_nodes_can_be_folded():
    model = entries(konfig.to_html(make_config()))["model"]
    assert model.find("details") is not None
    assert "nn.Dense(" in text_of(model.find("details/summary"))


def test_page_has_a_search_box_and_nothing_from_outside():
    page = konfig.to_html(make_config())
    assert parse(page).find("input").get("oninput")
    for word in ("http:", "https:", "src=", "<link", "@import", "url("):
        assert word not in page


def test_origin_is_shown_on_hover():
    (line,) = entries(konfig.to_html(make_config()))["seed"].findall("span")
    assert "cfg.seed" in line.get("title")
    assert "test_listing.py:" in line.get("title")


def test_overridden_fields_are_highlighted():
    cfg = make_config()
    konfig.apply_overrides(cfg, {"seed": 3})
    found = entries(konfig.to_html(cfg))
    assert "overridden" in found["seed"].find("span").get("class")
    assert "overridden" not in found["kind"].find("span").get("class")


def test_notebook_shows_the_page():
    cfg = make_config()
    assert cfg._repr_html_() == konfig.to_html(cfg)


class _Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</details>&"],
)
def test_values_and_keys_are_escaped(text):
    cfg = konfig.ConfigDict({text: text, "n": {"__qualname__": text}})
    page = konfig.to_html(cfg)
    parser = _Tags()
    parser.feed(page)
    assert parser.tags <= {"div", "span", "style", "input", "details", "summary"}
    assert repr(text) in text_of(parse(page))


_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8
)


_TREES = st.recursive(
    _TEXT | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)
    ),
    max_leaves=5,
)


@hypothesis.given(st.dictionaries(_TEXT, _TREES, max_size=3))
def test_any_config_gives_a_well_formed_page_and_text(fields):
    cfg = konfig.ConfigDict({f"_{key}": value for key, value in fields.items()})
    parse(konfig.to_html(cfg))
    assert konfig.to_text(cfg)


def test_list_that_holds_itself_is_shown_once():
    cfg = konfig.ConfigDict({"l": [{"a": 1}]})
    cfg.l.append(cfg.l)
    assert "<same as cfg.l>" in konfig.to_text(cfg)
    assert "same as cfg.l" in konfig.to_html(cfg)
