"""The one exception of the package that is not about bad input."""


class UnsolvableError(Exception):
    """An algorithm that cannot solve the data it was given, with the reason as a sentence.

    Caught where algorithms are called, and nowhere else is anything caught: data that cannot be solved becomes a
    verdict, a defect stays visible.
    """
