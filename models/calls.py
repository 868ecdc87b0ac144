"""Steps grouped into calls of the training function. Pure."""


def whole_calls(steps: int, per_call: int) -> int:
    """The number of steps, rounded up to whole calls."""
    return -(-steps // per_call) * per_call


def calls(steps: int, per_call: int) -> tuple[int, ...]:
    """The steps of each call that together train `steps`: whole calls and a remainder."""
    whole, rest = divmod(steps, per_call)
    return (per_call,) * whole + ((rest,) if rest else ())
