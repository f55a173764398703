"""Makes rope-llama-cpp.json: what llama.cpp computes with a small model under several statements about RoPE.

    python3 -m venv /tmp/refs && /tmp/refs/bin/pip install xllamacpp==2026.10.11549 gguf numpy
    /tmp/refs/bin/python tests/data/weights/make_rope.py tests/data/weights

The models are those of `tests/weights/gguf_writer.rs`, whose values follow from a tensor's number and an element's; they are
written here once more, with a vocabulary, which llama.cpp needs. Each case has the metadata keys behind the architecture's name
and the natural logarithms of the probabilities of the eight best tokens that follow `prompt`.
"""
import datetime, json, re, sys, tempfile
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np

source = (Path(__file__).parents[1] / "text/make_references.py").read_text()
scope = {"__name__": "references"}
exec(re.sub(r"\nmain\(\)\n*$", "\n", source), scope)
Runtime = scope["Runtime"]

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, CONTEXT, BASE = 32, 2, 1, 32, 32, 32, 1024, 10000.0
PROMPT = [2 + (i * i * 7 + i * 3) % 30 for i in range(200)]


def tensors(qwen3):
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = [("token_embd", (VOCAB, HIDDEN)), ("output_norm", (HIDDEN,)), ("output", (VOCAB, HIDDEN)),
              ("blk.0.attn_norm", (HIDDEN,)), ("blk.0.attn_q", (q, HIDDEN)), ("blk.0.attn_k", (kv, HIDDEN)),
              ("blk.0.attn_v", (kv, HIDDEN)), ("blk.0.attn_output", (HIDDEN, q)), ("blk.0.ffn_norm", (HIDDEN,)),
              ("blk.0.ffn_gate", (FFN, HIDDEN)), ("blk.0.ffn_up", (FFN, HIDDEN)), ("blk.0.ffn_down", (HIDDEN, FFN))]
    if qwen3:
        shapes += [("blk.0.attn_q_norm", (HEAD_DIM,)), ("blk.0.attn_k_norm", (HEAD_DIM,))]
    for t, (name, shape) in enumerate(shapes):
        e = np.arange(np.prod(shape))
        x = (((e * 7 + t * 13) % 61) / 32 - 1).astype(np.float32).reshape(shape)
        # Values that f16 holds, in F32: llama.cpp rounds what it multiplies with F16 weights to f16.
        yield name + ".weight", x


def write(path, arch, keys):
    w = gguf.GGUFWriter(path, arch)
    for add, value in [(w.add_block_count, 1), (w.add_context_length, CONTEXT), (w.add_embedding_length, HIDDEN),
                       (w.add_feed_forward_length, FFN), (w.add_head_count, HEADS), (w.add_head_count_kv, KV_HEADS),
                       (w.add_key_length, HEAD_DIM), (w.add_value_length, HEAD_DIM), (w.add_rope_freq_base, BASE),
                       (w.add_layer_norm_rms_eps, 1e-5)]:
        add(value)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([chr(33 + i) for i in range(VOCAB)])
    w.add_token_types([1] * VOCAB)
    w.add_token_merges(["! \""])
    w.add_eos_token_id(0)
    w.add_bos_token_id(0)
    for key, value in keys.items():
        add = {str: w.add_string, int: w.add_uint32, float: w.add_float32}[type(value)]
        add(f"{arch}.{key}", value)
    for name, x in tensors(arch == "qwen3"):
        w.add_tensor(name, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}
CASES = [
    ("llama", {}),
    ("llama", {"rope.scaling.factor": 4.0}),
    ("llama", {"rope.scale_linear": 2.0}),
    ("llama", YARN),
    ("llama", YARN | {"rope.scaling.attn_factor": 0.75}),
    ("qwen3", {}),
    ("qwen3", YARN | {"rope.scaling.factor": 2.5}),
]


def main():
    rows = []
    for arch, keys in CASES:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            write(f.name, arch, keys)
            runtime = Runtime(f.name, exact=True)
            answer = runtime.post("/completion", {"prompt": PROMPT, "n_predict": 1, "temperature": 0, "n_probs": 8,
                                                  "cache_prompt": False})
            del runtime
        best = answer["completion_probabilities"][0]["top_logprobs"]
        rows.append({"arch": arch, "keys": keys, "best": [[t["id"], round(t["logprob"], 6)] for t in best]})
    how = {"made_by": "tests/data/weights/make_rope.py", "date": datetime.date.today().isoformat(),
           "runtime": "llama.cpp as bundled in the PyPI wheel xllamacpp " + version("xllamacpp")}
    with open(Path(sys.argv[1], "rope-llama-cpp.json"), "w") as f:
        f.write("{\n" + f' "how": {json.dumps(how)},\n "prompt": {json.dumps(PROMPT)},\n "cases": [\n')
        f.write(",\n".join("  " + json.dumps(row) for row in rows) + "\n ]\n}\n")


main()
