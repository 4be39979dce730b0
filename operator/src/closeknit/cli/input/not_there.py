"""Nothing that could be shown."""


class NotThere(Exception):  # noqa: N818 - it is no error of ours
    """Why nothing is shown; the message is one line for a person."""
