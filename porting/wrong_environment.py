"""The one exception for what is wrong with the machine rather than with a model."""


class WrongEnvironment(Exception):
    """What this environment lacks, and the remedy: one line. A command ends with exit code 2."""
