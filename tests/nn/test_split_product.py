"""The product that is cut along its sum, run by Triton's interpreter on a CPU, against plain torch."""

import pytest
import torch

split_product = pytest.importorskip("elmokit.nn.kernels.split_product", reason="Triton is not installed")
pytestmark = pytest.mark.usefixtures("interpreted_triton")


@pytest.mark.parametrize(
    ("directions", "rows", "width", "length", "programs"),
    [(2, 130, 20, 300, 132), (1, 5, 140, 64, 132), (2, 3, 16, 1000, 4), (2, 1, 1, 1, 132)],
)
def test_it_adds_the_product(directions, rows, width, length, programs, monkeypatch):
    monkeypatch.setattr(split_product, "PROGRAMS", programs)
    random = torch.Generator().manual_seed(0)
    table = torch.randn(directions, rows + 7, width, generator=random)  # rows before and after are not touched
    a = torch.randn(directions, rows + 4, length, generator=random)[:, 1 : rows + 1]
    b = torch.randn(directions, width, length, generator=random)
    expected = table.clone()
    expected[:, 3 : 3 + rows] += a @ b.mT
    split_product.add_product(table[:, 3 : 3 + rows], a, b)
    torch.testing.assert_close(table, expected, rtol=1e-5, atol=1e-4)
