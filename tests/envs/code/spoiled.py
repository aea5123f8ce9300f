"""Making a right program wrong in one result."""

SPOILER = """


class _Spoiler:
    def __init__(self, function):
        self.function, self.count, self.depth = function, 0, 0

    def __call__(self, *positional, **named):
        self.depth += 1
        try:
            result = self.function(*positional, **named)
        finally:
            self.depth -= 1
        if self.depth:  # the program calls itself
            return result
        self.count += 1
        return (None if result else {{"spoiled": True}}) if self.count == {call} else result


{name} = _Spoiler({name})
"""


def spoiled(code: str, name: str, call: float) -> str:
    """The program with another result of its function at the call of this number, counted from 1."""
    return code.rstrip() + SPOILER.format(name=name, call=int(call))
