#!/usr/bin/env python3
"""Makes tests/golden/tensor_files/ and the seeds of the readers' fuzz targets: tiny files as PyTorch, safetensors and (by hand) TensorFlow 1 write them.

    python tests/golden/make_tensor_files.py

Needs torch, safetensors, cramjam (a Snappy encoder). Versions used: see VERSIONS in the output folder. PyTorch's old
form names storages by their address in memory, so *_old files differ from run to run in those numbers. Every element is
a small function of the tensor's name and its index, so that the test knows it without a list:

    value(name, i) = (7 * i + sum of the name's bytes) % 61 - 30     (bools: that number is even)
"""
import argparse
import collections
import pathlib
import struct
import zipfile

import cramjam
import safetensors
import safetensors.torch
import torch

OUT = pathlib.Path(__file__).parent / "tensor_files"


def value(name, shape, dtype=torch.float32):
    n = 1
    for d in shape:
        n *= d
    base = sum(name.encode())
    flat = torch.tensor([(7 * i + base) % 61 - 30 for i in range(n)], dtype=torch.int64)
    if dtype == torch.bool:
        flat = flat % 2 == 0
    elif dtype == torch.uint8:
        flat = flat.remainder(256).to(torch.uint8)  # -1 is 255
    return flat.to(dtype).reshape(shape)


def plain():
    """Every dtype, a scalar, an empty tensor, a name beyond ASCII."""
    d = collections.OrderedDict()
    for name, shape, dtype in [
        ("f32", (3, 4), torch.float32), ("f16", (2, 5), torch.float16), ("bf16", (7,), torch.bfloat16),
        ("f64", (2, 2), torch.float64), ("i64", (1, 6), torch.int64), ("i32", (3,), torch.int32),
        ("i16", (4,), torch.int16), ("i8", (5,), torch.int8), ("u8", (6,), torch.uint8), ("bool", (9,), torch.bool),
        ("scalar", (), torch.float32), ("empty", (0, 3), torch.float32), ("größe.weight", (2, 3), torch.float32),
    ]:
        d[name] = value(name, shape, dtype)
    return d


def views():
    """Permuted, strided and shared storages. Names say what the elements are, in row-major order."""
    d = collections.OrderedDict()
    d["transposed"] = value("transposed", (4, 3)).t().contiguous().t()         # strides (1, 4)
    d["permuted"] = value("permuted", (2, 3, 4)).permute(2, 0, 1).contiguous().permute(1, 2, 0)
    pool = torch.full((200,), 99.0)
    pool[3:9] = value("part.a", (6,))
    pool[20:32] = value("part.b", (3, 4)).flatten()
    pool[40:100:5] = value("stepped", (2, 6)).flatten()
    d["part.a"] = pool[3:9]
    d["part.b"] = pool[20:32].view(3, 4)
    d["stepped"] = pool[40:100:5].view(2, 6)
    d["tied"] = value("tied", (5, 2))
    d["tied.again"] = d["tied"]
    d["tied.view"] = d["tied"].detach()
    row = value("expanded", (1, 4))
    d["expanded"] = row.expand(3, 4)                                           # stride 0: rows repeat
    return d


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(3, 2)
        self.norm = torch.nn.LayerNorm(2)
        with torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(value(name, tuple(p.shape)))


def training():
    """As NVIDIA's trainers save: the state_dict one level down, beside an optimizer that has really stepped."""
    net = Net()
    before = collections.OrderedDict((k, v.clone()) for k, v in net.state_dict().items())
    state = net.state_dict()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net.norm(net.dense(torch.ones(1, 3))).sum().backward()
    optimizer.step()
    for k in state:
        state[k] = before[k]
    return {"model": state, "optimizer": optimizer.state_dict(),
            "grad_scaler": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 0},
            "epoch": 3, "files": [1, "shard_0.hdf5", ("a", None, True, 2 ** 70)], "data": (1, 2.5, -7, 70000)}


def write_pytorch():
    forms = {"zip": {}, "old": {"_use_new_zipfile_serialization": False}}
    for form, options in forms.items():
        torch.save(plain(), OUT / f"plain_{form}.bin", **options)
        torch.save(views(), OUT / f"views_{form}.pt", **options)
        torch.save(training(), OUT / f"training_{form}.pt", **options)
    torch.save(dict(plain()), OUT / "plain_protocol4.bin", pickle_protocol=4)
    torch.save(torch.nn.ParameterDict({"weight": torch.nn.Parameter(value("weight", (2, 2)))}).state_dict(),
               OUT / "parameters.pt")
    torch.save({"weight": torch.nn.Parameter(value("weight", (2, 2))), "model_version": 1}, OUT / "raw_parameter.pt")
    torch.save(Net(), OUT / "module.pt")  # a whole module: must be refused by the name of its class
    torch.save({"when": torch.device("cpu"), "weight": value("weight", (2,))}, OUT / "device.pt")
    if hasattr(torch.serialization, "set_crc32_options"):
        torch.serialization.set_crc32_options(False)
        torch.save({"weight": value("weight", (2, 2))}, OUT / "no_crc.pt")
        torch.serialization.set_crc32_options(True)


def write_safetensors():
    safetensors.torch.save_file(dict(plain()), OUT / "plain.safetensors", metadata={"format": "pt"})


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


CRC32C = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    CRC32C.append(i)


def masked_crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = c >> 8 ^ CRC32C[(c ^ byte) & 255]
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def block(entries, interval=16):
    """A table block: keys share their beginnings with the one before, except at restart points."""
    out, restarts, last = b"", [], b""
    for i, (key, val) in enumerate(entries):
        shared = 0
        if i % interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(last), len(key)) and last[shared] == key[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(val)) + key[shared:] + val
        last = key
    restarts = restarts or [0]
    return out + b"".join(struct.pack("<I", r) for r in restarts) + struct.pack("<I", len(restarts))


def table(entries, per_block):
    out, index = b"", []

    def put(contents, snappy):
        nonlocal out
        packed = bytes(cramjam.snappy.compress_raw(contents)) if snappy else contents
        place = varint(len(out)) + varint(len(packed))
        kind = bytes([1 if snappy else 0])
        out += packed + kind + struct.pack("<I", masked_crc32c(packed + kind))
        return place

    for i in range(0, len(entries), per_block):
        part = entries[i:i + per_block]
        index.append((part[-1][0], put(block(part), True)))
    meta = put(block([]), False)
    places = meta + put(block(index, 1), True)
    return out + places + b"\0" * (40 - len(places)) + struct.pack("<Q", 0xDB4775248B80FB57)


def write_tf1():
    """A bundle with Snappy blocks and two data files, as TensorFlow writes it where Snappy is switched on. The table is
    made here by hand; the compressed bytes come from a real Snappy encoder."""
    kinds = {torch.float32: 1, torch.float64: 2, torch.int32: 3, torch.uint8: 4, torch.int16: 5, torch.int8: 6,
             torch.int64: 9, torch.bool: 10, torch.bfloat16: 14, torch.float16: 19}
    tensors = dict(plain())
    for layer in range(12):
        for what in ("kernel", "bias"):
            name = f"bert/encoder/layer_{layer}/attention/output/dense/{what}"
            tensors[name] = value(name, (3, 2) if what == "kernel" else (2,))
            tensors[name + "/adam_m"] = value(name + "/adam_m", (2,))
    data, entries = [b"", b""], [(b"", bytes([8, 2, 0x1a, 2, 8, 1]))]  # 2 data files, version 1
    for i, name in enumerate(sorted(tensors, key=str.encode)):
        t = tensors[name].contiguous()
        raw = bytes(t.flatten().view(torch.uint8).tolist()) if t.dim() and t.numel() else t.numpy().tobytes()
        shape = b"".join(b"\x12" + varint(len(d)) + d for d in (b"\x08" + varint(n) if n else b"" for n in t.shape))
        entry = b"\x08" + varint(kinds[t.dtype]) + b"\x12" + varint(len(shape)) + shape
        shard = i % 2
        if shard:
            entry += b"\x18" + varint(shard)
        if data[shard]:
            entry += b"\x20" + varint(len(data[shard]))
        if raw:
            entry += b"\x28" + varint(len(raw))
        entry += b"\x35" + struct.pack("<I", masked_crc32c(raw))
        data[shard] += raw
        entries.append((name.encode(), entry))
    entries.append(("zz_object_graph".encode(), b"\x08\x07\x12\x00\x28\x03\x35\0\0\0\0"))  # a string, left out
    (OUT / "snappy.ckpt.index").write_bytes(table(entries, 20))
    for i in range(2):
        (OUT / f"snappy.ckpt.data-{i:05}-of-00002").write_bytes(data[i])


def write_seeds():
    """Where the fuzz targets start from: the same files, in the targets' own framing."""
    def put(target, name, data):
        folder = OUT.parent.parent / "fuzz" / "corpus" / f"fuzz_{target}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    put("safetensors", "plain", (OUT / "plain.safetensors").read_bytes())
    one = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    put("safetensors", "one", struct.pack("<Q", len(one)) + one + b"\0\0\x80\x3f")
    put("safetensors", "none", struct.pack("<Q", 2) + b"{}")
    for path in sorted(OUT.glob("*.pt")) + sorted(OUT.glob("*.bin")):
        put("pytorch", path.stem, path.read_bytes())
        if zipfile.is_zipfile(path) and path.stem != "no_crc":  # the pickle alone
            put("pytorch", path.stem + ".pkl", zipfile.ZipFile(path).read(path.stem + "/data.pkl"))
    index, data = (OUT / "snappy.ckpt.index").read_bytes(), (OUT / "snappy.ckpt.data-00000-of-00002").read_bytes()
    put("tf1", "snappy", struct.pack("<H", len(index)) + index + data)
    raw = b"\0\0\x80\x3f"
    header = (b"", b"\x08\x01\x1a\x02\x08\x01")
    entry = (b"a", b"\x08\x01\x12\x04\x12\x02\x08\x01\x28\x04\x35" + struct.pack("<I", masked_crc32c(raw)))
    entries = block([header, entry])[:-8]
    plain_block, snappy_block = b"\0" + entries, b"\1" + bytes(cramjam.snappy.compress_raw(block([header, entry])))
    put("tf1", "plain_block", struct.pack("<H", len(plain_block)) + plain_block + raw)
    put("tf1", "snappy_block", struct.pack("<H", len(snappy_block)) + snappy_block + raw)


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(1)
    write_pytorch()
    write_safetensors()
    write_tf1()
    write_seeds()
    (OUT / "VERSIONS").write_text(f"torch {torch.__version__}\nsafetensors {safetensors.__version__}\n"
                                  f"cramjam {cramjam.__version__}\n")


if __name__ == "__main__":
    main()
