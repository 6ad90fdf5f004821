"""The subcommands of `elmo`, one file each: a dataclass whose fields are the options and whose `run` does the work.

Arguments arrive parsed (`cli.py` does that); results leave on the screen or in files. torch and the model code are
imported inside `run`, so that `--help` answers at once.
"""

__all__: list[str] = []
