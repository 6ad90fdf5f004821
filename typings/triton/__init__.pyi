# Kernels are Python only in looks: to pyright everything of Triton is Any, whether Triton is installed or not.
from typing import Any

def __getattr__(name: str) -> Any: ...  # noqa: ANN401
