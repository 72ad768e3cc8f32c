"""Skills for BabyAI, as an inducer may write them: primitives are there by name."""


def turn_around() -> str:
    """Face the other way. Returns what is seen then."""
    turn_left()
    return turn_left()


def walk(steps: int) -> str:
    """Go forward some steps, or until something is in the way. Returns what is seen at the end."""
    seen = "You have not moved."
    for _ in range(steps):
        seen = go_forward()
    return seen
