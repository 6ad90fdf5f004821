"""A model as two ONNX graphs: ids of words → word vectors, and word vectors → layers.

Arrives: an `Elmo`. Leaves: two ONNX models that any batch, any number of words and any length fit.

    words     ids (N, C) int64 → vectors (N, P): the word encoder of `nn/`, as it is. C may be any number of columns up
              to the model's, if all words end before it and the widest filter still fits behind the longest
    layers    words (B, W, P) float32 with both boundaries of each sentence, lengths (B) int64, boundaries included
              → layers (L+1, B, W, 2P), zero behind the end of a sentence

There are two, so that who runs them can remember the vectors of words, which repeat, as `Embedder` does.

`torch.export` of `Elmo` itself fails: it packs sentences without padding, and how many rows read at a step depends on
the data. `LayersGraph` is the same network over padded rows. Its backward direction reverses each sentence within its
own length, so padding comes last in both directions and nothing before it can see it. The loop over words is torch's
`scan`, which becomes one ONNX `Scan`; a Python loop would be unrolled, and the length of a sentence frozen. `scan` is a
private name of torch: this is the only file that imports it.

Shapes: N words, C columns of ids, B sentences, W positions, P width of a direction, H cell width, L LSTM layers.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.export import Dim

from elmokit.errors import EngineError, InputError, MissingExtra
from elmokit.io.safe_tensors import quantise
from elmokit.model import Elmo
from elmokit.nn.bilm import BiLM, BilmState
from elmokit.nn.lstmp import Lstmp, pass_gates

if TYPE_CHECKING:
    import onnx  # pyright: ignore[reportMissingImports]

__all__ = ["OPSET", "LayersGraph", "Precision", "State", "build_graphs", "check_installed"]

OPSET = 20  # what torch 2.13 writes; onnxruntime knows it since 1.17 (2024)
Precision = Literal["float32", "int8"]
State = Literal["zero", "canonical"]

LEAST_QUANTISED = 2**14  # numbers: a smaller matrix saves nothing
LARGEST_FILE = 2**31 - 2**24  # bytes: protobuf, which ONNX files are, holds less than 2 GB


def check_installed() -> None:
    """A `MissingExtra` unless the packages that write ONNX are installed."""
    try:
        import onnx  # noqa: F401 # pyright: ignore[reportMissingImports]
        import onnxscript  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise MissingExtra(
            f"{problem.name} is not installed, which writes ONNX: pip install 'elmokit[export]'"
        ) from problem


def build_graphs(
    elmo: Elmo, *, precision: Precision = "float32", state: State = "zero"
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The graphs `words` and `layers` of a model.

    Arguments:
        elmo: the model, with float32 weights.
        precision: `"int8"` stores each matrix as int8 with one float32 scale per unit. It is computed with in float32,
            so results depend on their own sentence alone.
        state: what each sentence starts from; written into the graph.
    """
    check_installed()
    _check_size(elmo)
    # Sizes of an example are never 0 or 1, which torch would take for constants.
    ids_NC = torch.from_numpy(elmo.scheme.begin_ids).repeat(3, 1)
    columns = {} if elmo.config.characters is None else {1: Dim.DYNAMIC}
    words = _convert(
        elmo.encoder,
        {"ids_NC": ids_NC},
        {"ids_NC": {0: Dim.DYNAMIC, **columns}},
        inputs={"ids": ["words", "columns"]},
        output="vectors",
    )
    words_BWP = torch.zeros(3, 5, elmo.config.lstm.projection_dim)
    layers = _convert(
        LayersGraph(elmo.bilm, elmo.canonical_state if state == "canonical" else None),
        {"words_BWP": words_BWP, "lengths_B": torch.tensor([5, 2, 3])},
        {"words_BWP": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "lengths_B": {0: Dim.DYNAMIC}},
        inputs={"words": ["sentences", "positions"], "lengths": ["sentences"]},
        output="layers",
    )
    if precision == "int8":
        for graph in (words, layers):
            _store_as_int8(graph)
    return words, layers


class LayersGraph(nn.Module):
    """Padded sentences of word vectors to all their layers, with a control flow that does not depend on the data.

    Arguments:
        bilm: the two stacks, whose weights are used, not copied.
        state: one row, from which every sentence starts; zeros if not given.
    """

    def __init__(self, bilm: BiLM, state: BilmState | None = None) -> None:
        super().__init__()
        self.bilm = bilm
        state = BilmState.zeros(bilm.config, 1) if state is None else state
        self.hidden: Tensor
        self.cell: Tensor
        self.register_buffer("hidden", state.hidden.detach().clone(), persistent=False)
        self.register_buffer("cell", state.cell.detach().clone(), persistent=False)

    def forward(self, words_BWP: Tensor, lengths_B: Tensor) -> Tensor:
        """All layers (L+1, B, W, 2P); zero behind the end of each sentence."""
        positions_W = torch.arange(words_BWP.shape[1], device=words_BWP.device)
        is_word_BW = positions_W < lengths_B.unsqueeze(1)
        # A sentence is reversed within its length, and the padding stays where it is; twice gives back the sentence.
        reversed_BW = torch.where(is_word_BW, lengths_B.unsqueeze(1) - 1 - positions_W, positions_W)
        order_BWP = reversed_BW.unsqueeze(2).expand(-1, -1, words_BWP.shape[2])
        forward = self._read(words_BWP, direction=0)
        backward = self._read(words_BWP.gather(1, order_BWP), direction=1)
        layers_LBWD = torch.stack(
            [
                torch.cat([there, back.gather(1, order_BWP)], dim=2)
                for there, back in zip(forward, backward, strict=True)
            ]
        )
        return layers_LBWD * is_word_BW.unsqueeze(2).to(layers_LBWD.dtype)

    def _read(self, words_BWP: Tensor, *, direction: int) -> list[Tensor]:
        """The word vectors and the outputs of each layer, in the order of reading."""
        stack = (self.bilm.forward_layers, self.bilm.backward_layers)[direction]
        outputs = [words_BWP]
        for number, layer in enumerate(stack):
            start = self.hidden[number, direction], self.cell[number, direction]
            output_BWP = self._run(cast(Lstmp, layer), outputs[-1].transpose(0, 1), *start).transpose(0, 1)
            outputs.append(output_BWP + outputs[-1] if self.bilm.config.residual and number > 0 else output_BWP)
        return outputs

    def _run(self, layer: Lstmp, inputs_WBP: Tensor, hidden_1P: Tensor, cell_1H: Tensor) -> Tensor:
        """Outputs (W, B, P) of one layer: the recurrence of `nn/lstmp.py`, whose step it shares."""
        from torch._higher_order_ops.scan import scan

        weights, clips, num_rows = layer.weights(), self.bilm.clips, inputs_WBP.shape[1]

        def read_word(state: tuple[Tensor, Tensor], inputs_B4H: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            gates_B4H = inputs_B4H + state[0] @ weights.recurrent_P4H
            hidden_BP, cell_BH = pass_gates(gates_B4H, state[1], weights.projection_HP, clips)
            return (hidden_BP, cell_BH), hidden_BP.clone()  # scan wants tensors of their own

        start = hidden_1P.expand(num_rows, -1).clone(), cell_1H.expand(num_rows, -1).clone()
        # What does not depend on the word before is one matmul for all words.
        _, outputs_WBP = scan(read_word, start, inputs_WBP @ weights.input_D4H + weights.bias_4H)
        return outputs_WBP


def _check_size(elmo: Elmo) -> None:
    if elmo.precision != "float32":
        raise InputError(f"expected a model with float32 weights, found {elmo.precision}: load it with float32")
    num_bytes = max(sum(4 * weight.numel() for weight in part.parameters()) for part in (elmo.encoder, elmo.bilm))
    if num_bytes > LARGEST_FILE:
        raise InputError(f"the graph would have {num_bytes / 1e9:.1f} GB, but an ONNX file holds less than 2 GB")


def _convert(
    module: nn.Module, example: dict[str, Tensor], dynamic: dict[str, Any], *, inputs: dict[str, list[str]], output: str
) -> onnx.ModelProto:
    """The ONNX graph of a module; `inputs` names its inputs and their dimensions that may have any size."""
    with torch.no_grad(), _quiet():
        try:
            program = torch.export.export(module, (), kwargs=example, dynamic_shapes=dynamic)
            converted = torch.onnx.export(
                program,
                (),
                kwargs=example,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=[output],
            )
        except (ImportError, RuntimeError, TypeError) as problem:  # its own errors are RuntimeErrors
            reason = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
            raise EngineError(
                f"torch {torch.__version__} cannot export this network, torch 2.13 can ({reason})"
            ) from problem
    assert converted is not None
    graph = converted.model_proto
    for value in graph.graph.input:
        for dim, name in zip(value.type.tensor_type.shape.dim, inputs[value.name], strict=False):
            if not dim.dim_value:
                dim.dim_param = name
    graph.producer_name = "elmokit"
    # Notes on where in its sources torch met each step would name the paths of this machine.
    for each in _list_graphs(graph.graph):
        for part in (graph, each, *each.node, *each.value_info, *each.input, *each.output, *each.initializer):
            del part.metadata_props[:]
    return graph


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter logs its steps, prints advice and warns of its own future: none of it is for a user."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _store_as_int8(model: onnx.ModelProto) -> None:
    """Put int8 and a scale in the place of each matrix; a runtime multiplies them once, when it loads the graph.

    Cast and Mul, not DequantizeLinear: onnxruntime folds those two, but keeps the latter to multiply at every step.
    """
    from onnx import TensorProto, helper, numpy_helper  # pyright: ignore[reportMissingImports]

    graph, units = model.graph, _find_units(model.graph)
    stored, nodes = [], []
    for tensor in graph.initializer:
        if tensor.name not in units or tensor.data_type != TensorProto.FLOAT:
            stored.append(tensor)
            continue
        values = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        numbers, scale = quantise(values, units[tensor.name] % values.dim())
        name = tensor.name
        stored.append(numpy_helper.from_array(numbers.numpy(), f"{name}.int8"))
        stored.append(numpy_helper.from_array(scale.numpy(), f"{name}.scale"))
        nodes.append(helper.make_node("Cast", [f"{name}.int8"], [f"{name}.unscaled"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}.unscaled", f"{name}.scale"], [name]))
    nodes += graph.node
    for field, values in ((graph.initializer, stored), (graph.node, nodes)):
        del field[:]
        field.extend(values)


def _find_units(graph: onnx.GraphProto) -> dict[str, int]:
    """The matrices that are worth it, and which dimension of each counts its units: what it adds up to."""
    sizes = {tensor.name: torch.Size(tensor.dims).numel() for tensor in graph.initializer}
    units = {}
    places = {"MatMul": -1, "Conv": 0, "Gemm": -1, "Gather": 0}
    nodes = (node for each in _list_graphs(graph) for node in each.node if node.op_type in places)
    for node in nodes:
        name = node.input[0 if node.op_type == "Gather" else 1]
        is_transposed = any(each.name == "transB" and each.i for each in node.attribute)
        if sizes.get(name, 0) >= LEAST_QUANTISED:
            units[name] = 0 if is_transposed else places[node.op_type]
    return units


def _list_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and those within it: what a scan does at each step."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _list_graphs(attribute.g)
