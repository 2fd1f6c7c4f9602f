"""The sentences of the walkthrough that say what was measured. They are made from the numbers, so they follow them."""

from __future__ import annotations

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
    return f"{sum(values) / len(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def relation(values: list[float], second: list[float]) -> str:
    """Whether all values are lower, or higher, than all of the second."""
    return "lower" if max(values) < min(second) else "higher" if min(values) > max(second) else "not clearly different"


def sentences(values: dict[str, Any]) -> dict[str, Any]:
    """The functions and lists that the text uses, by name, for these measurements."""
    trainings: Trainings = values["trainings"]

    def runs(name: str, key: str = "loss") -> str:
        return mean_and_range(trainings[name][key])

    def against(name: str, other: str) -> str:
        return f"loss {relation(trainings[name]['loss'], trainings[other]['loss'])}"

    def sentence(name: str, other: str, words: str, other_words: str = "as usual") -> str:
        how = relation(trainings[name]["loss"], trainings[other]["loss"])
        return f"{words} the loss is {runs(name)}, {other_words} {runs(other)}: {how}."

    def averaging_sentence() -> str:
        last, mean = trainings["usual"]["loss"], trainings["usual"]["mean of checkpoints"]
        lower = sum(after < before for before, after in zip(last, mean, strict=True))
        return (
            f"The mean of five checkpoints, ten updates apart, has a loss of {mean_and_range(mean)}, the last of them "
            f"{mean_and_range(last)}; the mean is lower with {lower} of {len(last)} seeds."
            + (" While the loss still falls fast, as here, older checkpoints pull the mean back." if lower < 2 else "")
        )

    def spectrum_sentence() -> str:
        before, after = values["spectrum"]["before"], values["spectrum"]["after"]
        small, ratio = sum(value < 0.5 for value in after), before[3] / before[4]
        return (
            f"Before, the four largest are at least {ratio:.0f} times the others. After, {len(after) - small} of "
            f"{len(after)} are between 0.5 and {max(after):.2f}; {small} of the smallest stay below 0.5."
        )

    def milliseconds(name: str) -> str:
        times = values["program"]["speed"][name]
        return f"{times['plain']:.2f} ms | {times['fast']:.2f} ms"

    plain = (tiny, millions, each)
    with_numbers = (runs, against, sentence, averaging_sentence, spectrum_sentence, milliseconds)
    return {"SETUP": values["setup"]} | {function.__name__: function for function in (*plain, *with_numbers)}
