"""Mutations: what can be wrong with a file, from a flipped bit to a link out of its folder.

A path and a generator of random numbers arrive; the file is changed, and a few words say how. A mutation whose words
begin with `!` must be refused, whatever it hits: NaN, a link out of the folder, a pipe, a device.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Draw = random.Random
Mutation = Callable[[Path, Draw], str]

HOSTILE: tuple[Any, ...] = (
    None, True, False, "false", "", 0, -1, 1, 1.0, 2.5, -0.0, 10**7, 2**31, 2**63, 10**40, 1e308, float("nan"),
    float("inf"), [], {}, [[]], "../../etc/passwd", "/etc/passwd", "someone/model", "a\nb\x1b[2J", "²", "x" * 5000,
    [1, 2, 3], {"a": 1}, [None], "\ud800", 50_000,
)  # fmt: skip


def mutate(path: Path, draw: Draw, *, keeps_kind: bool = False) -> str:
    """Spoil one file; says how. One that `keeps_kind` does not become a link, a pipe or a device."""
    kinds = [*BY_SUFFIX.get(path.suffix, (change_bytes,)), remove, swap, *(() if keeps_kind else (replace_kind,))]
    try:
        return draw.choice(kinds)(path, draw)
    except Exception:  # noqa: BLE001 - what an earlier mutation has left may be nothing that this one can change
        return change_bytes(path, draw) if path.is_file() else "gone"


# ---------------------------------------------------------------- bytes


def change_bytes(path: Path, draw: Draw) -> str:
    """Flip, overwrite, cut, double or append bytes."""
    data = bytearray(path.read_bytes())
    kind = draw.choice(["flip", "overwrite", "zero", "cut", "append", "double", "head", "insert"])
    start = draw.randrange(len(data) + 1) if draw.random() < 0.6 else draw.randrange(min(len(data), 400) + 1)
    length = draw.choice([1, 4, 8, 64, 500])
    if kind == "flip" and data:
        for _ in range(draw.choice([1, 1, 3, 20])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "overwrite":
        data[start : start + length] = draw.randbytes(len(data[start : start + length]))
    elif kind == "zero":
        data[start : start + length] = bytes(len(data[start : start + length]))
    elif kind == "cut":
        del data[start:]
    elif kind == "append":
        data += draw.randbytes(length)
    elif kind == "double":
        data[start:start] = data[start : start + length]
    elif kind == "head":
        del data[:length]
    elif kind == "insert":
        data[start:start] = draw.randbytes(length)
    path.write_bytes(data)
    return f"{kind} {length} bytes at {start}"


def inflate(path: Path, draw: Draw) -> str:
    """Very many very small things, which take far more memory than room in a file."""
    text = path.read_bytes()
    if path.parent.name == "inputs":
        return change_lines(path, draw)  # three million lines are no mistake, only long to read
    if path.suffix == ".json":
        kind = draw.choice(["lists", "strings", "names", "one"])
        more = {
            "lists": b"[" + b"[]," * 2 * 10**6 + b"0]",
            "strings": b"[" + b'"ab",' * 10**6 + b'"c"]',
            "names": b"{" + b",".join(b'"%d":0' % number for number in range(10**6)) + b"}",
            "one": b'"' + b"x" * 10**7 + b'"',
        }[kind]
        text = more if draw.random() < 0.3 else text.rstrip()[:-1] + b',"x":' + more + b"}"
    elif path.suffix == ".safetensors":
        kind, header = "header", b"{" + b",".join(b'"%d":{}' % number for number in range(4 * 10**5)) + b"}"
        text = len(header).to_bytes(8, "little") + header
    else:
        kind, text = "lines", text + draw.choice([b"ab\n", b"\n", b"a\t7\n"]) * 3 * 10**6
    path.write_bytes(text)
    return f"many {kind}"


def change_numbers(path: Path, draw: Draw) -> str:
    """Replace a number of an array."""
    import numpy as np

    numbers = np.fromfile(path, draw.choice(["<i4", "<i8", "u1"]))
    if len(numbers):
        limits = np.iinfo(numbers.dtype)
        numbers[draw.randrange(len(numbers))] = draw.choice([0, limits.max, limits.min, 1, limits.max // 2])
    numbers.tofile(path)
    return "a number"


# ---------------------------------------------------------------- JSON


def change_json(path: Path, draw: Draw) -> str:
    """Replace, remove or add a value."""
    values, what = change_value(json.loads(path.read_text(encoding="utf-8")), draw)
    path.write_text(json.dumps(values), encoding="utf-8")
    return what


def nest_json(path: Path, draw: Draw) -> str:
    """Put a thousand brackets around everything."""
    depth = draw.choice([3, 1000, 100_000])
    path.write_text("[" * depth + path.read_text(encoding="utf-8") + "]" * depth, encoding="utf-8")
    return f"{depth} brackets"


def change_value(values: Any, draw: Draw) -> tuple[Any, str]:
    """Plain values with one place changed, and which."""
    places = list(_list_places(values))
    if not places:
        return draw.choice(HOSTILE), "everything"
    holder, key = draw.choice(places)
    kind = draw.choice(["set", "set", "set", "set", "drop", "add", "scale"])
    if kind == "drop":
        del holder[key]
    elif kind == "add" and isinstance(holder, dict):
        holder[f"{key}x"] = draw.choice(HOSTILE)
    elif kind == "scale" and isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
        holder[key] = draw.choice(
            [holder[key] + 1, holder[key] * 1000, -holder[key], float(holder[key]), holder[key] - 1]
        )
    else:
        holder[key] = draw.choice(HOSTILE)
    return values, f"{kind} {str(key)[:40]}"


def _list_places(values: Any) -> Any:
    if isinstance(values, dict):
        pairs: Sequence[tuple[Any, Any]] = list(values.items())
    elif isinstance(values, list):
        pairs = list(enumerate(values))[:20]
    else:
        return
    for key, value in pairs:
        yield values, key
        yield from _list_places(value)


# ---------------------------------------------------------------- tensors


def change_header(path: Path, draw: Draw) -> str:
    """A value of the JSON in front of a .safetensors file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, what = change_value(json.loads(data[8 : 8 + length]), draw)
    text = json.dumps(header).encode()
    size = draw.choice([len(text)] * 8 + [2**40, 2**63 - 1, 0])
    path.write_bytes(size.to_bytes(8, "little") + text + data[8 + length :])
    return f"header: {what}"


def change_tensors(path: Path, draw: Draw) -> str:
    """NaN, another shape, another type, a name too many or too few in a .safetensors file."""
    from safetensors.torch import load_file, save_file

    tensors, what = change_tensor(load_file(path), draw)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return what


def change_tensor(tensors: dict[str, Any], draw: Draw) -> tuple[dict[str, Any], str]:
    """Named tensors with one of them changed, and how."""
    import torch

    name = draw.choice(sorted(tensors))
    tensor = tensors[name].clone()
    kind = draw.choice(["nan", "inf", "shape", "dtype", "drop", "add", "large", "empty"])
    is_float = tensor.is_floating_point() and tensor.numel()
    if kind in ("nan", "inf") and is_float:
        tensor.view(-1)[draw.randrange(tensor.numel())] = float(kind)
        tensors[name] = tensor
        return tensors, f"!{kind} in {name}"
    if kind == "shape":
        tensor = tensor.reshape(-1)[: max(0, tensor.numel() - 1)]
    elif kind == "dtype":
        tensor = tensor.to(draw.choice([torch.int64, torch.float64, torch.float16, torch.int8, torch.bool]))
    elif kind == "large":
        tensor = torch.cat([tensor.reshape(-1)] * 3)
    elif kind == "empty":
        tensor = tensor.reshape(-1)[:0]
    tensors[name] = tensor
    if kind == "drop":
        del tensors[name]
    elif kind == "add":
        tensors[f"{name}.more"] = tensors[name].clone()
    return tensors, f"{kind} {name}"


def change_torch(path: Path, draw: Draw) -> str:
    """A value or a tensor somewhere in a file of `torch.save`."""
    import torch

    values = torch.load(path, weights_only=True)
    holders = [values] if isinstance(values, dict) else []
    for holder in holders:
        holders += [value for value in holder.values() if isinstance(value, dict)]
    with_tensors = [each for each in holders if any(isinstance(value, torch.Tensor) for value in each.values())]
    what = "nothing"
    if with_tensors and draw.random() < 0.5:
        holder = draw.choice(with_tensors)
        own = {name: value for name, value in holder.items() if isinstance(value, torch.Tensor)}
        changed, what = change_tensor(own, draw)
        for name in own:
            holder.pop(name, None)
        holder.update(changed)
    elif holders:
        values, what = change_value(values, draw)
    torch.save(values, path, _use_new_zipfile_serialization=draw.random() < 0.8)
    return what


def change_hdf5(path: Path, draw: Draw) -> str:
    """Another shape or type, NaN, a link, or nothing in place of a dataset."""
    import h5py
    import numpy as np

    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        name = draw.choice(names)
        values = file[name][()]
        kind = draw.choice(["nan", "shape", "dtype", "drop", "link", "claim", "group", "rename"])
        if kind == "nan":
            values.reshape(-1)[draw.randrange(values.size)] = np.nan
        elif kind == "shape":
            values = values.reshape(-1)[:-1]
        elif kind == "dtype":
            values = values.astype(draw.choice(["int32", "float64", "float16", "S3"]))
        del file[name]
        if kind == "link":
            file[name] = h5py.ExternalLink("/etc/passwd", "/x")
        elif kind == "claim":
            file.create_dataset(name, (2**20, 2**20), "float32", chunks=(1, 1024))
        elif kind == "group":
            file.create_group(name)
        elif kind == "rename":
            file[f"{name}x"] = values
        elif kind != "drop":
            file[name] = values
    return f"{'!' if kind in ('nan', 'link') else ''}{kind} {name}"


# ---------------------------------------------------------------- text


def change_lines(path: Path, draw: Draw) -> str:
    """Odd characters, long lines, columns too many, another encoding."""
    text = path.read_bytes()
    kind = draw.choice(["nul", "invalid", "long", "tab", "surrogate", "utf-16", "blank", "odd", "repeat", "drop"])
    lines = text.split(b"\n")
    number = draw.randrange(len(lines))
    if kind == "long":
        lines[number] = draw.choice([b"x", b"ab "]) * draw.choice([1000, 100_000])
    elif kind == "repeat":
        lines *= draw.choice([2, 50])
    elif kind == "drop":
        del lines[number]
    elif kind == "utf-16":
        lines = [b"\n".join(lines).decode("utf-8", "replace").encode("utf-16")]
    else:
        odd = {
            "nul": b"a\0b", "invalid": b"\xff\xfe\xc3(", "tab": b"a\tb\tc", "surrogate": b"\xed\xa0\x80", "blank": b"",
            "odd": "\u2028 \u200b \u202e e\u0301 \U0001f9d1\u200d\U0001f680 \u3000".encode(),
        }  # fmt: skip
        lines[number] = odd[kind]
    path.write_bytes(b"\n".join(lines))
    return f"{kind} in line {number + 1}"


def change_gzip(path: Path, draw: Draw) -> str:
    """A stream that unpacks to something else, or to very much."""
    lines, one_line = b"a b\n" * draw.choice([1, 1000]), draw.choice([b"x", b"\0", b"\xff", b"x "]) * 10**7
    path.write_bytes(gzip.compress(draw.choice([lines, one_line]), 1))
    return "unpacks to something else"


def change_zip(path: Path, draw: Draw) -> str:
    """An entry that leaves the folder, claims a size, or is something else."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(sorted(entries))
    kind = draw.choice(["escape", "bomb", "inside", "rename", "link"])
    inside = path.with_name(f"inside{Path(name).suffix}")
    inside.write_bytes(entries.pop(name))
    what = mutate_inside(inside, draw) if kind == "inside" else kind
    data = inside.read_bytes() if inside.is_file() else b""
    inside.unlink(missing_ok=True)
    info = zipfile.ZipInfo({"escape": "../evil.json", "rename": f"x{name}"}.get(kind, name))
    if kind == "link":
        info.external_attr, data = 0o120777 << 16, b"/etc/passwd"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(info, bytes(10**8) if kind == "bomb" else data)
        for other, data in entries.items():
            archive.writestr(other, data)
    return f"{'!' if kind in ('escape', 'link') else ''}{what} of {name}"


def mutate_inside(path: Path, draw: Draw) -> str:
    """Spoil what stands in a file, not what kind of file it is."""
    return draw.choice(list(BY_SUFFIX.get(path.suffix, (change_bytes,))))(path, draw)


# ---------------------------------------------------------------- what kind of file it is


def remove(path: Path, draw: Draw) -> str:
    """No file, an empty one, or a folder."""
    path.unlink()
    kind = draw.choice(["missing", "empty", "folder"])
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    return kind


def replace_kind(path: Path, draw: Draw) -> str:
    """A link out of the folder, a pipe, or a link to a device."""
    kind = draw.choice(["link", "pipe", "device"])
    if kind == "link":
        outside = path.parents[1] / f"outside{path.suffix}"
        shutil.move(path, outside)
        path.symlink_to(outside)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    return f"!{kind}"


def swap(path: Path, draw: Draw) -> str:
    """The contents of another file of the folder."""
    others = sorted(each for each in path.parent.rglob("*") if each.is_file() and each != path)
    if others:
        path.write_bytes(draw.choice(others).read_bytes())
    return "another file's contents"


JSON = (*[change_json] * 12, nest_json, inflate, change_bytes, change_bytes)
BY_SUFFIX: dict[str, tuple[Mutation, ...]] = {
    ".json": JSON,
    ".jsonl": (change_lines, change_bytes),
    ".safetensors": (*[change_header] * 4, *[change_tensors] * 6, inflate, change_bytes),
    ".hdf5": (change_hdf5, change_hdf5, change_hdf5, change_bytes),
    ".pkl": (change_torch, change_torch, change_torch, change_bytes),
    ".pt": (change_torch, change_torch, change_torch, change_torch, change_bytes),
    ".bin": (change_numbers, change_bytes),
    ".txt": (*[change_lines] * 6, *[change_bytes] * 3, inflate),
    ".dic": (*[change_lines] * 6, *[change_bytes] * 3, inflate),
    ".conll": (change_lines, change_lines, change_bytes),
    ".gz": (change_gzip, change_bytes),
    ".zip": (change_zip, change_zip, change_zip, change_bytes),
}


# ---------------------------------------------------------------- command lines

# No path outside of the case's own folder, and nothing below /dev: a command may write where it is told to.
ODD_ARGUMENTS = (
    "", " ", "-", "--", "---", "-1", "0", "1e999", "nan", "inf", "10000000000000000000000", "0x10", "3.5", "yes",
    "none", "\udcff", "x" * 5000, "ü", "nowhere", "nowhere/at/all", "model", "in.txt", "*", "in.txt.gz", "a\nb",
    "someone/model", "--help", "--debug", "--json", "--layers", "--batch-size", "--model", "--top", "--precision",
    "int8", "bfloat16", "--state", "carry", "canonical", "--device", "cuda", "moon", "--format", "npy", "--split",
    "--tokenised", "--resume", "--overwrite", "--substitutes", "bank", "--recipe", "--seed", "--mode", "streams",
    "--dropout", "--unroll",
)  # fmt: skip
# Numbers of processes and threads are taken at their word, and so is the time that a training may take.
LAST = {"train": ("--minutes", "0", "--workers", "1", "--device", "cpu")}


def mutate_arguments(arguments: Sequence[str], draw: Draw) -> list[str]:
    """A command line with arguments dropped, doubled, swapped, replaced or added."""
    words = list(arguments)
    for _ in range(draw.choice([1, 1, 2, 3])):
        place = draw.randrange(len(words)) if words else 0
        kind = draw.choice(["drop", "double", "swap", "replace", "replace", "add", "add", "cut"])
        if kind == "add" or not words:
            words.insert(place + 1, draw.choice(ODD_ARGUMENTS))
        elif kind == "drop":
            del words[place]
        elif kind == "double":
            words.insert(place, words[place])
        elif kind == "swap":
            other = draw.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif kind == "replace":
            words[place] = draw.choice(ODD_ARGUMENTS)
        elif kind == "cut":
            words[place] = words[place][: len(words[place]) // 2]
    return words + list(LAST.get(words[0] if words else "", ()))
