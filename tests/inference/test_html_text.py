"""HTML is translated sentence by sentence, and keeps its markup."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.inference.html_text import HtmlText

PARTS = ["Hello", "world.", " ", "&amp;", "&lt;b>", "<", ">", '"', "'", "=", "/", "<b>", "</b>", "<i class=x>", "</i>"]
PARTS += [
    "<a href='x<y'>",
    "</a>",
    "<br>",
    "<p>",
    "</p>",
    "<td>",
    '<img alt="a>b">',
    "<code>",
    "</code>",
    "<!--",
    "-->",
]
PARTS += ["<script>", "</script>", "<svg/>", "<p translate=no>", "<span>", "</span>", "\n", "&nbsp;"]
SHORT = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)
EMPHASIS = [("b", []), "/b", ("span", []), "/span"]


class Parsed(HTMLParser):
    """All text and all tags of HTML, as Python's parser sees them."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tags = "", []
        self.feed(html)
        self.close()

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")


def translated(html, placeholders=False, change=str.upper):
    page = HtmlText(html, placeholders)
    while page.lines:
        page.fill([change(line) for line in page.lines])
    return page.result


@pytest.mark.parametrize(
    ("html", "lines"),
    [
        ("<p>Hello <b>world</b>!</p>", ["Hello world!"]),
        ("<p><b>Hello world</b></p>", ["Hello world"]),
        ("<li>One <em>two</em> three<li>Four", ["One two three", "Four"]),
        ('<p>See <a href="x<y">the <i>page</i></a>.', ["See", "the page", "."]),
        ("Use <code>ls -l</code> or <span class=z>that</span>", ["Use", "or", "that"]),
        ("a <b>x<br>y</b> z", ["a", "x", "y", "z"]),
        ("<p>One\n two&nbsp;three</p>", ["One two three"]),
        (
            "<title>T</title><pre>P</pre><script>'<p>S'</script><textarea>A</textarea><!-- C --><svg><text>V</svg>",
            ["T"],
        ),
        ("<div translate='no'>a <div>b</div> c</div> d <b translate=no>e</b> f", ["d", "f"]),
        ("<p title=' translate=no'>a</p><p/translate = 'NO'>b</p>", ["a"]),
        ("<script>'<i translate=no>'</script><p>Hello</p>", ["Hello"]),
        ("<p title='a>b' data-x=\"<p>no\">Hello</p><a hre", ["Hello"]),
        ("\ufeff<p>One&nbsp;<a>two</a>&#160;", ["One", "two"]),
        ("<title>The <script> tag</title><p>One</p>", ["One"]),
        ("<p>a <svg/> b <kbd>c</p><ul><li translate=no>d<li>e</ul>", ["a", "b", "c", "d", "e"]),
        ("I <3 you, 1 < 2", ["I <3 you, 1 < 2"]),
    ],
)
def test_sentences_of_html_are_whole_without_placeholders(html, lines):
    assert HtmlText(html, placeholders=False).lines == lines


@pytest.mark.parametrize(
    ("html", "line", "translation", "expected"),
    [
        ("<p>A <b>b</b> c</p>", 'A <x id="1"/>b<x id="3"/> c', '<x id="1"/>B<x id="3"/> C a', "<p><b>B</b> C a</p>"),
        ("<i>A <img>b</i>", 'A <x id="2"/>b', 'A <x id="2"/>B', "<i>A <img>B</i>"),
        ("A <code>x&lt;y</code> b", 'A <x id="1"/> b', 'B <x id="1"/> a', "B <code>x&lt;y</code> a"),
        # What loses a tag, nests wrongly, has one twice or empties a link is translated again without tags.
        ("A <b>b</b> c", 'A <x id="1"/>b<x id="3"/> c', "A b c", "A B C"),
        ("A <b>b</b> c", 'A <x id="1"/>b<x id="3"/> c', '<x id="3"/>A<x id="1"/>', "A B C"),
        ("A <b>b</b> c", 'A <x id="1"/>b<x id="3"/> c', '<x id="1"/>A<x id="3"/><x id="3"/>', "A B C"),
        ("A <a>\u00bb</a> c", 'A <x id="1"/>\u00bb<x id="3"/> c', 'A <x id="1"/><x id="3"/> c', "A <a>\u00bb</a> C"),
        (
            "A <a><code>b</code></a>.",
            'A <x id="1"/><x id="2"/><x id="3"/>.',
            'A <x id="2"/> <x id="1"/>.<x id="3"/>',
            "A <a><code>b</code></a>.",
        ),
        ("A <a>b</a> c", 'A <x id="1"/>b<x id="3"/> c', 'A b c <x id="1"/><x id="3"/>', "A <a>B</a> C"),
        (
            "A <a><code>b</code></a> c",
            'A <x id="1"/><x id="2"/><x id="3"/> c',
            'A <x id="1"/><x id="3"/> c<x id="2"/>',
            "A <a><code>b</code></a> C",
        ),
        ("A <b>b<i>c</b>d</i> e", 'A <x id="1"/>b<x id="3"/>c<x id="5"/>d<x id="7"/> e', None, "A BCD E"),
        ('&lt;x id="1"/> <b>b</b> c', '<x id="1"/> <x id="1"/>b<x id="3"/> c', None, '&lt;X ID="1"/&gt; B C'),
    ],
)
def test_a_tag_is_a_placeholder_of_a_model_that_has_them(html, line, translation, expected):
    page = HtmlText(html, placeholders=True)
    assert page.lines == [line]
    page.fill([translation or line])
    page.fill([line.upper() for line in page.lines])
    assert page.result == expected


@given(SHORT, st.booleans())
def test_html_keeps_all_texts_and_all_tags_but_emphasis(html, placeholders):
    before, after = Parsed(html), Parsed(translated(html, placeholders, str))
    assert after.text.split() == before.text.split()
    assert [tag for tag in after.tags if tag not in EMPHASIS] == [tag for tag in before.tags if tag not in EMPHASIS]


@given(SHORT, st.booleans())
def test_no_text_of_html_comes_back_as_markup(html, placeholders):
    page = HtmlText(html, placeholders)
    page.fill(["<em>&amp;"] * len(page.lines))
    page.fill(["<em>&amp;"] * len(page.lines))
    assert ("em", []) not in Parsed(page.result).tags


def test_html_in_ascii_stays_ascii(tmp_path):
    page = HtmlText("<p>&ldquo;A&rdquo;", placeholders=False)
    page.fill(["\u201eÄ\u201c"])
    page.write(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_bytes() == b"<p>&#8222;&#196;&#8220;"


def test_markup_of_html_is_looked_through_once():
    for part in (
        "<",
        "<a ",
        "<a '",
        "<!--",
        "<script>",
        "<svg><",
        "<![CDATA[",
        "<p translate=no>",
        "<span class=a>x</span>",
    ):
        assert len(HtmlText(part * 50_000, placeholders=True).lines) <= 50_000
