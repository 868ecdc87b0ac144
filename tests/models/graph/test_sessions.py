"""The watchdog of a task whose session would wait for ever."""

from itertools import chain, repeat

from tfdist.models.graph.sessions import SILENCE_S, guard


def silent_after(answers: list[int]) -> int:
    """The seconds after which the guard ends the task, with these numbers of answers, the last one for ever."""
    numbers, slept, ended = chain(answers, repeat(answers[-1])), [], []
    guard(lambda: next(numbers), slept.append, lambda: ended.append(len(slept)))
    return int(ended[0])


def test_a_task_ends_after_a_minute_without_an_answer():
    assert silent_after([1]) == SILENCE_S


def test_an_answer_starts_the_minute_again():
    assert silent_after([1, *[1] * 30, 2]) == 31 + SILENCE_S


def test_others_may_take_longer_to_start():
    assert silent_after([0, *[0] * 99, 1]) == 100 + SILENCE_S
