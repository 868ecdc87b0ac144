import math

from tfdist.launch.task_group import Deadlines


def test_due_actions_run_once_in_the_order_of_their_times():
    deadlines, done = Deadlines(), []
    actions = {name: (lambda now, name=name: done.append((name, now))) for name in "abc"}
    for name, at in {"a": 3.0, "b": 1.0, "c": 9.0}.items():
        deadlines.set(actions[name], at)
    deadlines.run_due(3.0)
    deadlines.run_due(4.0)
    assert done == [("b", 3.0), ("a", 3.0)]
    assert deadlines.next() == 9.0


def test_an_action_can_cancel_and_postpone_others():
    deadlines, done = Deadlines(), []

    def later(now):
        done.append(now)

    def never(now):
        raise AssertionError

    def first(_):
        deadlines.cancel(never)
        deadlines.set(later, 5.0)

    for action in (first, never, later):
        deadlines.set(action, 1.0)
    deadlines.run_due(1.0)
    assert done == []
    assert (deadlines.of(later), deadlines.of(never)) == (5.0, None)
    deadlines.run_due(5.0)
    assert done == [5.0]
    assert deadlines.next() == math.inf
