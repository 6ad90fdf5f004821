"""The kernels of `stored_shares.py` for Hopper in Gluon, a level below Triton: candidates that no GPU has run yet.

Triton waits for a product before it goes on. Here the next tile's logits and this tile's sums are under way on the
tensor cores while the multiprocessor makes this tile's exponentials and stores them, so the pass should take the time
of its products alone. `linear_cross_entropy.py --steps sweep` compares it with the pass that is in use. If it is faster
it belongs into `stored_shares.py`; if not, this file can go. Triton's interpreter does not run Gluon.

One step of the loop, for tile j of the words:

    products  | sums += shares(j-1) @ words(j-1) | logits(j+1) = hidden @ words(j+1) |
    the rest  |            shares(j) = exp2(logits(j) ...), stored as they are       |

- The copy engine (TMA) brings words into a ring of shared memory; nothing else goes through shared memory. Outputs
  stay in registers (`IN_REGISTERS`), or else the products would read them from there again for every tile.
- A thread holds columns 8j + 2t and 8j + 2t + 1 of a product (t its place among four): 4 bytes here and there. Words
  lie permuted in memory (`arranged`), so that these are eight words in a row, and a thread stores 16 bytes at once.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from elmokit.nn.kernels import stored_shares as stored
from elmokit.nn.kernels.linear_cross_entropy import LOG2E, parts_of

NEVER = -1e30
LOG2E_ = gl.constexpr(LOG2E)
SHARED = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
BIAS_COLUMNS = gl.constexpr(16)  # one of them used
NARROW = gl.NVMMASharedLayout(swizzle_byte_width=32, element_bitwidth=16, rank=2)
_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # its name before Triton 3.7


def shares(
    hidden_NP, words_VP, bias_V, targets_N, tiles, unrolled=2, in_registers=True, sums=True, stores=True, streams=False
):
    """What `stored_shares._shares` gives. Without `sums` or `stores` (to see what they cost) a part of it is wrong."""
    (num_rows, width), num_words = hidden_NP.shape, len(words_VP)
    whole = tiles._replace(stepped=unrolled * tiles.stepped)
    blocks, splits, reach = parts_of(num_rows, num_words, whole, width, hidden_NP.device)
    stride = triton.cdiv(num_words, whole.stepped) * whole.stepped
    table, numbers = hidden_NP.new_empty(num_rows, stride), bias_V.new_empty
    own_N, totals_N, losses_N, grad_hidden_NP = *(numbers(num_rows) for _ in range(3)), numbers(num_rows, width)
    part_totals, part_sums = numbers(splits, num_rows), numbers(splits, num_rows, width)
    row_blocks = (triton.cdiv(num_rows, stored._ROWS_AT_ONCE),)
    stored._own_kernel[row_blocks](
        hidden_NP, words_VP, bias_V, targets_N, own_N, num_rows, K=width, BLOCK_M=stored._ROWS_AT_ONCE, num_warps=4
    )
    biases = bias_V.new_full((stride,), NEVER)
    biases[:num_words] = bias_V
    words = TensorDescriptor.from_tensor(arranged(words_VP, stride), [tiles.stepped, width], SHARED)
    shares_kernel[(blocks, splits)](
        hidden_NP, words, biases, own_N, table, part_totals, part_sums, num_rows, stride, reach // tiles.stepped,
        K=width, BLOCK_M=tiles.owned, BLOCK_V=tiles.stepped, STAGES=tiles.stages, UNROLLED=unrolled,
        IN_REGISTERS=in_registers, SUMS=sums, STORES=stores, STREAMS=streams, num_warps=tiles.warps,
    )  # fmt: skip
    stored._combine_kernel[row_blocks](
        words_VP, targets_N, part_totals, part_sums, table, totals_N, losses_N, grad_hidden_NP, num_rows, stride,
        splits, K=width, BLOCK_M=stored._ROWS_AT_ONCE, num_warps=4,
    )  # fmt: skip
    return table[:, :num_words], totals_N, losses_N, grad_hidden_NP


def arranged(words_VP, num_places):
    """In each 32 words, the one at 8t + 2j + e goes to 8j + 2t + e; zeros behind the last word."""
    padded = words_VP.new_zeros(num_places, words_VP.shape[1])
    padded[: len(words_VP)] = words_VP
    return padded.view(-1, 4, 4, 2, words_VP.shape[1]).transpose(1, 2).reshape(padded.shape)


@gluon.constexpr_function
def _places(block_m, block_v):
    """Which thread holds what of a tile of shares, back in the order of words: eight in a row, four threads a row."""
    registers = [[0, 1], [0, 2], [0, 4], *([0, 2**i] for i in range(5, block_v.bit_length() - 1)), [8, 0]]
    warps = [[2**i, 0] for i in range(4, block_m.bit_length() - 1)]
    lanes = [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [block_m, block_v])


@gluon.jit
def _fetch(words, ring, ready, step, count, first, STAGES: gl.constexpr, BLOCK_V: gl.constexpr):
    """Have a tile of words copied: one more than are needed, since the loop makes the logits of one more."""
    slot = step % STAGES
    wanted = step <= count
    mbarrier.expect(ready.index(slot), words.block_type.nbytes, pred=wanted)
    place = [(first + step) * BLOCK_V, 0]
    tma.async_copy_global_to_shared(words, place, ready.index(slot), ring.index(slot), pred=wanted)


@gluon.jit(do_not_specialize=["num_rows", "num_tiles"])
def shares_kernel(
    hidden, words, bias, own, shares, part_totals, part_sums, num_rows, stride, num_tiles,
    K: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_V: gl.constexpr, STAGES: gl.constexpr, UNROLLED: gl.constexpr,
    IN_REGISTERS: gl.constexpr, SUMS: gl.constexpr, STORES: gl.constexpr, STREAMS: gl.constexpr,
    num_warps: gl.constexpr,
):  # fmt: skip
    logit_form: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BLOCK_V, 16])
    sum_form: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, K, 16])
    factor_form: gl.constexpr = gl.DotOperandLayout(0, sum_form, 2)
    load_form: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [num_warps, 1], [1, 0])
    place_form: gl.constexpr = _places(BLOCK_M, BLOCK_V)
    dtype: gl.constexpr = hidden.dtype.element_ty
    policy: gl.constexpr = ".cs" if STREAMS else ""
    split = gl.program_id(1)
    block = gl.program_id(0) * BLOCK_M
    first = split * num_tiles
    count = gl.minimum(num_tiles, stride // BLOCK_V - first)  # a multiple of UNROLLED

    ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_V, K], words.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(ready.index(slot), count=1)
    for early in gl.static_range(STAGES - 2):
        _fetch(words, ring, ready, early, count, first, STAGES, BLOCK_V)

    rows = block + gl.arange(0, BLOCK_M, gl.SliceLayout(1, load_form))
    ks = gl.arange(0, K, gl.SliceLayout(0, load_form))
    loaded_MK = gl.load(hidden + rows[:, None] * K + ks[None, :], mask=(rows < num_rows)[:, None], other=0.0)
    if IN_REGISTERS:
        hidden_MK = gl.convert_layout(loaded_MK, gl.DotOperandLayout(0, logit_form, 2))
    else:
        hidden_MK = gl.allocate_shared_memory(dtype, [BLOCK_M, K], words.layout, loaded_MK)
        hopper.fence_async_shared()
    rows = block + gl.arange(0, BLOCK_M, gl.SliceLayout(1, logit_form))
    own_M = gl.load(own + rows, mask=rows < num_rows, other=0.0)
    total_M = gl.full([BLOCK_M], 0.0, gl.float32, gl.SliceLayout(1, logit_form))
    nothing_MV = gl.full([BLOCK_M, BLOCK_V], 0.0, gl.float32, logit_form)
    sum_MK = hopper.warpgroup_mma_init(gl.full([BLOCK_M, K], 0.0, gl.float32, sum_form))
    factor_MV = gl.convert_layout(nothing_MV.to(dtype), factor_form)
    place_rows = block + gl.arange(0, BLOCK_M, gl.SliceLayout(1, place_form))
    places = first * BLOCK_V + gl.arange(0, BLOCK_V, gl.SliceLayout(0, place_form))
    place = shares + place_rows.to(gl.int64)[:, None] * stride + places[None, :]

    mbarrier.wait(ready.index(0), 0)
    logits_MV = hopper.warpgroup_mma(hidden_MK, ring.index(0).permute((1, 0)), nothing_MV, use_acc=False)
    for several in range(count // UNROLLED):
        for one in gl.static_range(UNROLLED):  # two or more: the next logits need not move to where these were
            step = several * UNROLLED + one
            following = (step + 1) % STAGES
            mbarrier.wait(ready.index(following), ((step + 1) // STAGES) & 1)
            words_KV = ring.index(following).permute((1, 0))
            next_MV = hopper.warpgroup_mma(hidden_MK, words_KV, nothing_MV, use_acc=False, is_async=True)
            # All warps have waited, one step ago, for the sums of two steps ago: that slot is free.
            _barrier()
            _fetch(words, ring, ready, step + STAGES - 2, count, first, STAGES, BLOCK_V)

            bias_V = gl.load(bias + step * BLOCK_V + places)
            bias_V = bias_V.reshape((BLOCK_V // 32, 4, 4, 2)).permute((0, 2, 1, 3)).reshape((BLOCK_V,))
            bias_V = gl.convert_layout(bias_V, gl.SliceLayout(0, logit_form), assert_trivial=True)
            above_MV = logits_MV * LOG2E_ + (bias_V[None, :] - own_M[:, None])
            share_MV = gl.exp2(gl.minimum(above_MV, 100.0, propagate_nan=tl.PropagateNan.ALL))
            total_M += gl.sum(share_MV, 1)
            half_MV = share_MV.to(dtype)
            if STORES:
                in_order = half_MV.reshape((BLOCK_M, BLOCK_V // 32, 4, 4, 2)).permute((0, 1, 3, 2, 4))
                in_order = gl.convert_layout(in_order.reshape((BLOCK_M, BLOCK_V)), place_form, assert_trivial=True)
                gl.store(place + step * BLOCK_V, in_order, mask=(place_rows < num_rows)[:, None], cache_modifier=policy)
            if SUMS:
                # At most the next logits are still under way; the factor must stay in its registers until now.
                sum_MK, factor_MV = hopper.warpgroup_mma_wait(1, deps=(sum_MK, factor_MV))
                factor_MV = gl.convert_layout(half_MV, factor_form, assert_trivial=True)
                sum_MK = hopper.warpgroup_mma(factor_MV, ring.index(step % STAGES), sum_MK, is_async=True)
                logits_MV = hopper.warpgroup_mma_wait(1, deps=(next_MV,))
            else:
                logits_MV = hopper.warpgroup_mma_wait(0, deps=(next_MV,))
    sum_MK, factor_MV = hopper.warpgroup_mma_wait(0, deps=(sum_MK, factor_MV))

    at = split.to(gl.int64) * num_rows
    gl.store(part_totals + at + rows, total_M, mask=rows < num_rows)
    rows = block + gl.arange(0, BLOCK_M, gl.SliceLayout(1, sum_form))
    ks = gl.arange(0, K, gl.SliceLayout(0, sum_form))
    gl.store(part_sums + (at + rows)[:, None] * K + ks[None, :], sum_MK, mask=(rows < num_rows)[:, None])


def weight_gradients(shares_NV, hidden_NP, factor_N, tiles):
    """What `stored_shares._weight_gradients` gives: the bias as a product of its own, of shares that are at hand."""
    (num_rows, width), num_words = hidden_NP.shape, shares_NV.shape[1]
    factors_NP = (hidden_NP.float() * factor_N.unsqueeze(1)).to(hidden_NP.dtype)
    columns_NX = hidden_NP.new_zeros(num_rows, BIAS_COLUMNS.value)
    columns_NX[:, 0] = factor_N
    weight, bias = factor_N.new_empty(num_words, width), factor_N.new_empty(num_words)
    describe = TensorDescriptor.from_tensor
    weight_kernel[(triton.cdiv(num_words, tiles.owned),)](
        describe(shares_NV, [tiles.stepped, tiles.owned], SHARED), describe(factors_NP, [tiles.stepped, width], SHARED),
        describe(columns_NX, [tiles.stepped, BIAS_COLUMNS.value], NARROW), weight, bias, num_words,
        triton.cdiv(num_rows, tiles.stepped), K=width, BLOCK_V=tiles.owned, BLOCK_N=tiles.stepped, STAGES=tiles.stages,
        num_warps=tiles.warps,
    )  # fmt: skip
    return weight, bias


@gluon.jit
def _fetch_rows(
    shares, factors, columns, share_ring, factor_ring, column_ring, ready, step, count, word,
    STAGES: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    slot = step % STAGES
    bar, row, wanted = ready.index(slot), step * BLOCK_N, step < count
    nbytes: gl.constexpr = shares.block_type.nbytes + factors.block_type.nbytes + columns.block_type.nbytes
    mbarrier.expect(bar, nbytes, pred=wanted)
    tma.async_copy_global_to_shared(shares, [row, word], bar, share_ring.index(slot), pred=wanted)
    tma.async_copy_global_to_shared(factors, [row, 0], bar, factor_ring.index(slot), pred=wanted)
    tma.async_copy_global_to_shared(columns, [row, 0], bar, column_ring.index(slot), pred=wanted)


@gluon.jit(do_not_specialize=["count"])
def weight_kernel(
    shares, factors, columns, grad_weight, grad_bias, num_words, count,
    K: gl.constexpr, BLOCK_V: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """For a block of words: all rows of the table, in order, so the sums need no adding up."""
    form: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, K, 16])
    narrow: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BIAS_COLUMNS, 16])
    word = gl.program_id(0) * BLOCK_V
    share_ring = gl.allocate_shared_memory(shares.dtype, [STAGES, BLOCK_N, BLOCK_V], shares.layout)
    factor_ring = gl.allocate_shared_memory(shares.dtype, [STAGES, BLOCK_N, K], factors.layout)
    column_ring = gl.allocate_shared_memory(shares.dtype, [STAGES, BLOCK_N, BIAS_COLUMNS], columns.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(STAGES):
        mbarrier.init(ready.index(each), count=1)
    for early in gl.static_range(STAGES - 1):
        _fetch_rows(shares, factors, columns, share_ring, factor_ring, column_ring, ready, early, count, word,
                    STAGES, BLOCK_N)  # fmt: skip
    weight_VK = gl.full([BLOCK_V, K], 0.0, gl.float32, form)
    bias_VX = gl.full([BLOCK_V, BIAS_COLUMNS], 0.0, gl.float32, narrow)
    for step in range(count):
        slot = step % STAGES
        mbarrier.wait(ready.index(slot), (step // STAGES) & 1)
        shares_VN = share_ring.index(slot).permute((1, 0))
        weight_VK = hopper.warpgroup_mma(shares_VN, factor_ring.index(slot), weight_VK, is_async=True)
        bias_VX = hopper.warpgroup_mma(shares_VN, column_ring.index(slot), bias_VX, is_async=True)
        # Once all warps have waited for the products of one step ago, that slot is free.
        weight_VK, bias_VX = hopper.warpgroup_mma_wait(2, deps=(weight_VK, bias_VX))
        _barrier()
        _fetch_rows(shares, factors, columns, share_ring, factor_ring, column_ring, ready, step + STAGES - 1, count,
                    word, STAGES, BLOCK_N)  # fmt: skip
    weight_VK, bias_VX = hopper.warpgroup_mma_wait(0, deps=(weight_VK, bias_VX))

    words = word + gl.arange(0, BLOCK_V, gl.SliceLayout(1, form))
    ks = gl.arange(0, K, gl.SliceLayout(0, form))
    gl.store(grad_weight + words[:, None] * K + ks[None, :], weight_VK, mask=(words < num_words)[:, None])
    words = word + gl.arange(0, BLOCK_V, gl.SliceLayout(1, narrow))
    gl.store(grad_bias + words, gl.sum(bias_VX, 1), mask=words < num_words)  # but one column is zeros
