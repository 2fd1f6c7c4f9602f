"""The sentences of the walkthrough that say what was measured. They are made from the numbers, so they follow them."""

from __future__ import annotations

import math
from typing import Any

Trainings = dict[str, dict[str, list[float]]]  # name -> measure -> a value for each seed


def tiny(number: float) -> str:
    """A small number in one digit, as 2e-15."""
    return f"{number:.0e}" if number else "0"


def millions(count: float) -> str:
    """A count in millions with a decimal."""
    return f"{count / 1e6:.1f}"


def each(values: list[float]) -> str:
    """Numbers in a row: 1.0, 2.0 and 3.0."""
    texts = [f"{value:.1f}" for value in values]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def mean_and_range(values: list[float]) -> str:
    """The mean of some seeds with their range: 3.21 (3.10 to 3.30)."""
    return f"{sum(values) / len(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def differences(values: list[float], second: list[float]) -> tuple[float, float]:
    """The smallest and the largest difference of a value to the second one of the same seed."""
    by_seed = [a - b for a, b in zip(values, second, strict=True)]
    return min(by_seed), max(by_seed)


def largest_difference(values: list[float], second: list[float], count: int) -> float:
    """The largest relative difference among the first `count` of two lists."""
    return max(abs(a - b) / b for a, b in zip(values[:count], second[:count], strict=True))


def digits_that_agree(values: list[float], second: list[float], count: int) -> int:
    """How many digits agree among the first `count` of two lists; 6 at most, as many as are stored."""
    difference = largest_difference(values, second, count)
    return min(6, int(-math.log10(difference))) if difference else 6


def relation(values: list[float], second: list[float]) -> str:
    """Whether a value is lower, or higher, than the second one with every seed."""
    low, high = differences(values, second)
    return "lower" if high < 0 else "higher" if low > 0 else "not clearly different"


def sentences(values: dict[str, Any]) -> dict[str, Any]:
    """The functions and lists that the text uses, by name, for these measurements."""
    trainings: Trainings = values["trainings"]

    def runs(name: str, key: str = "loss") -> str:
        return mean_and_range(trainings[name][key])

    def against(name: str, other: str) -> str:
        return f"loss {relation(trainings[name]['loss'], trainings[other]['loss'])}"

    def sentence(name: str, other: str, words: str, other_words: str = "the usual {}") -> str:
        """A comparison of two trainings. other_words: how to call the mean of the other one."""
        losses, other_losses = trainings[name]["loss"], trainings[other]["loss"]
        low, high = differences(losses, other_losses)
        how, mean = relation(losses, other_losses), sum(other_losses) / len(other_losses)
        start = f"{words} the loss is {runs(name)}, {how}"
        if how in ("lower", "higher"):
            near, far = sorted((abs(low), abs(high)))
            return f"{start} than {other_words.format(f'{mean:.2f}')}, by {near:.2f} to {far:.2f}."
        return (
            f"{start} from {other_words.format(f'{mean:.2f}')}: with the same seed between {low:+.2f} and {high:+.2f}."
        )

    def averaging_sentence() -> str:
        last, mean = trainings["usual"]["loss"], trainings["usual"]["mean of checkpoints"]
        lower = sum(after < before for before, after in zip(last, mean, strict=True))
        return (
            f"The mean of five checkpoints, ten updates apart, has a loss of {mean_and_range(mean)}, the last of them "
            f"{mean_and_range(last)}; the mean is lower with {lower} of {len(last)} seeds."
            + (
                " While the loss still falls fast, as here, older checkpoints pull the mean back."
                if lower < len(last) / 2
                else ""
            )
        )

    functions = (*PLAIN, runs, against, sentence, averaging_sentence)
    return {"SETUP": values["setup"]} | {function.__name__: function for function in functions}


def longer_sentence(longer: Trainings, updates: int) -> str:
    """What becomes of the training without positions when it is longer."""
    losses, usual = longer["no positions"]["loss"], longer["usual"]["loss"]
    how = relation(losses, usual)
    turned = "They pay in the end" if how == "higher" else "They do not pay soon"
    link = "than" if how in ("lower", "higher") else "from"
    return (
        f"{turned}: after {updates} updates the loss without positions is {mean_and_range(losses)}, {how} {link} "
        f"{mean_and_range(usual)} with them ({len(losses)} seeds)."
    )


def spectrum_sentence(before: list[float], after: list[float]) -> str:
    """Singular values before and after `orthogonal`, largest first."""
    small, ratio = sum(value < 0.5 for value in after), before[3] / before[4]
    return (
        f"Before, the four largest are at least {ratio:.0f} times the others. After, {len(after) - small} of "
        f"{len(after)} are between 0.5 and {max(after):.2f}; {small} of the smallest stay below 0.5."
    )


def speed_sentence(speed: dict[str, dict[str, float]]) -> str:
    """Which fast forms are not faster than the plain ones, by more than the noise of a twentieth."""
    slower = [
        f"the fast form of `{name}` takes {times['fast'] / times['plain'] - 1:.0%} longer"
        for name, times in speed.items()
        if times["fast"] > 1.05 * times["plain"]
    ]
    return f"On this machine {' and '.join(slower)}." if slower else "Each is faster on this machine."


def milliseconds(times: dict[str, float]) -> str:
    """Two cells of a table: the milliseconds of a plain and a fast form."""
    return f"{times['plain']:.1f} | {times['fast']:.1f}"


def beams_sentence(greedy: float, widest: list[float]) -> str:
    """BLEU of the widest search for growing length penalties, beside that of greedy search."""
    if widest[0] >= greedy:
        gains = f"{widest[0] - greedy:.1f} BLEU without a length penalty, {max(widest) - greedy:.1f} with the best one"
        return f"More beams gain {gains}."
    lost, back = greedy - widest[0], max(widest) - widest[0]
    share = "all of it" if back >= lost else "most of it, not all" if back > lost / 2 else "less than half of it"
    return f"With more beams BLEU falls; a length penalty takes back {share}."


PLAIN = (
    tiny,
    millions,
    each,
    mean_and_range,
    largest_difference,
    digits_that_agree,
    longer_sentence,
    spectrum_sentence,
    speed_sentence,
    milliseconds,
    beams_sentence,
)
