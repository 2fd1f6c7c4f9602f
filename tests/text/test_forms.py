"""Forms of lines and variants of training pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transformer.evaluation.scores import form_scores
from transformer.text.forms import LINES, forms_of
from transformer.text.variants import swapped, variant


def test_each_form_is_what_its_name_says():
    (line,) = lines = ["Öffnen Sie %s jetzt."]
    forms = {name: text for name, (text,) in forms_of(lines).items()}
    swap = forms.pop("two letters swapped")
    assert forms == {
        "first letter small": "öffnen Sie %s jetzt.",
        "no final mark": "Öffnen Sie %s jetzt",
        "ALL CAPITALS": "ÖFFNEN SIE %s JETZT.",
        "Title Case": "Öffnen Sie %s Jetzt.",
        "small letters": "öffnen sie %s jetzt.",
    }
    assert swap != line
    assert sorted(swap) == sorted(line)
    assert list(forms_of(["你好世界很高兴。"] * (LINES + 1))) == [
        "no final mark"
    ]  # a script without case, words of one letter


def test_the_score_of_a_form_is_its_share_of_the_plain_lines():
    lines = [f"The small dog number {number} runs." for number in range(9)]
    forms = {"no final mark": [line[:-1] for line in lines], "ALL CAPITALS": [line.upper() for line in lines]}
    forms["swap"] = [line.replace("small dog", "cat") for line in lines]
    rows = form_scores(forms, lines, lines, "en")
    assert [row["share"] for row in rows[:3]] == [100.0] * 3
    assert 0 < rows[3]["share"] < 100
    assert form_scores({}, ["1"], ["1"], "en") == []


@given(st.text(alphabet="abcd eé. ", max_size=40), st.integers(0, 2**64))
def test_a_swap_changes_the_order_of_two_neighbours_alone(line, number):
    result = swapped(line, number)
    different = [index for index, pair in enumerate(zip(line, result, strict=True)) if len({*pair}) == 2]
    assert different in ([], [*range(min(different, default=0), min(different, default=0) + 2)])


def test_the_share_of_variants_is_that_of_the_knob_by_a_hash_of_the_pair():
    pairs = [(f"▁Satz ▁Nummer ▁{number} .", f"▁sentence ▁{number} .") for number in range(2000)]
    changed = [(pair, new) for pair in pairs if (new := variant(*pair, 0.2)) != pair]
    without = [new for _, new in changed if not new[0].endswith(".")]
    assert all(not target.endswith(".") for _, target in without)
    assert all(new[1] == pair[1] for pair, new in changed if new[0].endswith("."))
    assert 0.16 < len(changed) / len(pairs) < 0.24
    assert 0.15 < len(without) / len(changed) < 0.35
    assert [variant(*pair, 0.0) for pair in pairs] == pairs
