"""Makes dequant.json and smollm2-tensors.json with the `gguf` Python package, another reader of the format.

    python3 -m venv /tmp/refs && /tmp/refs/bin/pip install gguf numpy
    cargo xtask model smollm2
    /tmp/refs/bin/python tests/data/weights/make_references.py target/models/smollm2-135m-instruct.gguf tests/data/weights

dequant.json: random blocks of every quantised type and their values in f32, as bits. smollm2-tensors.json: sha256 of
tensors as they stand in a loaded model: dequantised, rounded to f16, q and k rows in half-split order, [q;k;v] and
[gate;up] stacked.
"""
import datetime, hashlib, json, sys
from importlib.metadata import version

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

BLOCKS = 3


def block(kind, rng):
    """A random block whose scales are ordinary numbers."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    b = rng.integers(0, 256, size, dtype=np.uint8)
    at = {T.Q4_0: [0], T.Q5_0: [0], T.Q8_0: [0], T.Q4_1: [0, 2], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208], T.Q2_K: [80, 82], T.Q3_K: [108], T.IQ4_NL: [0], T.IQ4_XS: [0]}[kind]
    for i in at:
        b[i:i + 2] = np.array([rng.normal() * 0.03], dtype=np.float16).view(np.uint8)
    return b


def dequant():
    rng = np.random.default_rng(20261129)
    rows = []
    for kind in [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K, T.Q2_K, T.Q3_K,
                 T.IQ4_NL, T.IQ4_XS]:
        data = np.concatenate([block(kind, rng) for _ in range(BLOCKS)])
        values = gguf.quants.dequantize(data, kind).astype(np.float32)
        rows.append({"type": int(kind), "name": kind.name, "bytes": data.tobytes().hex(),
                     "values": values.view(np.uint32).byteswap().tobytes().hex()})
    return rows


def tensors(path):
    reader = gguf.GGUFReader(path)
    have = {t.name: t for t in reader.tensors}

    def get(name, heads=0):
        t = have[name]
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float16)
        if heads:
            n, k = x.shape
            x = x.reshape(heads, n // heads // 2, 2, k).swapaxes(1, 2).reshape(n, k)
        return x

    def sha(*parts):
        return hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest()

    out = {"embedding": sha(get("token_embd.weight")), "final_norm": sha(get("output_norm.weight"))}
    for l in (0, 17, 29):
        b = f"blk.{l}."
        out[f"layer.{l}.attention_norm"] = sha(get(b + "attn_norm.weight"))
        out[f"layer.{l}.qkv"] = sha(get(b + "attn_q.weight", 9), get(b + "attn_k.weight", 3), get(b + "attn_v.weight"))
        out[f"layer.{l}.o"] = sha(get(b + "attn_output.weight"))
        out[f"layer.{l}.ffn_norm"] = sha(get(b + "ffn_norm.weight"))
        out[f"layer.{l}.gate_up"] = sha(get(b + "ffn_gate.weight"), get(b + "ffn_up.weight"))
        out[f"layer.{l}.down"] = sha(get(b + "ffn_down.weight"))
    return out


def main():
    model, out = sys.argv[1], sys.argv[2]
    how = {"made_by": "tests/data/weights/make_references.py", "runtime": "PyPI package gguf " + version("gguf"),
           "date": datetime.date.today().isoformat()}
    with open(f"{out}/dequant.json", "w") as f:
        json.dump({"how": how, "cases": dequant()}, f, indent=1)
        f.write("\n")
    how["model_sha256"] = hashlib.sha256(open(model, "rb").read()).hexdigest()
    with open(f"{out}/smollm2-tensors.json", "w") as f:
        json.dump({"how": how, "sha256": tensors(model)}, f, indent=1)
        f.write("\n")


main()
