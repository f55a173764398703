"""Makes spm-tokenizer.gguf and spm-ids.json: a small SentencePiece vocabulary with byte fallback, and llama.cpp's ids.

    python3 -m venv /tmp/refs && /tmp/refs/bin/pip install xllamacpp==2026.10.11549 gguf numpy sentencepiece
    /tmp/refs/bin/python tests/data/text/make_spm.py tests/data/text

The vocabulary is trained by the `sentencepiece` package on the texts below. llama.cpp needs a whole model to read it from: one
layer of zeros. Texts are encoded with and without the space that the vocabulary puts before a text; ids of the first kind are
compared with the `sentencepiece` package's own, and texts in which the two differ are named in `differ`: there specials are
written out, which that package does not read.
"""
import datetime, json, re, sys, tempfile
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import sentencepiece

HERE = Path(__file__).parent
source = (HERE / "make_references.py").read_text()
scope = {"__name__": "references"}
exec(re.sub(r"\nmain\(\)\n*$", "\n", source), scope)
Runtime, IDS, dump = scope["Runtime"], scope["IDS"], scope["dump"]

TEXTS = IDS + [
    "<s>text</s> more <unk> and <|im_start|>user\nhello<|im_start|>",
    "<s><s>  two spaces</s>",
    "  ▁ a space's sign of its own ▁▁",
    "<0x0A> is written out",
    "the theme there then thence " * 40,
]


def train(folder):
    corpus = folder / "corpus.txt"
    prompts = (HERE.parents[2] / "examples/prompts.txt").read_text()
    corpus.write_text("\n".join([prompts, *IDS[:10]]))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "spm"), model_type="bpe", vocab_size=900, byte_fallback=True,
        character_coverage=0.995, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, user_defined_symbols=["<|im_start|>"], num_threads=1, minloglevel=2,
        hard_vocab_limit=False)
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))


def kind(spm, i):
    for test, kind in [(spm.is_unknown, 2), (spm.is_control, 3), (spm.is_unused, 5), (spm.is_byte, 6)]:
        if test(i):
            return kind
    return 4 if spm.id_to_piece(i) == "<|im_start|>" else 1


def write(path, spm, add_space, tensors):
    w = gguf.GGUFWriter(path, "llama")
    for add, value in [(w.add_block_count, 1), (w.add_context_length, 2048), (w.add_embedding_length, 32),
                       (w.add_feed_forward_length, 32), (w.add_head_count, 1), (w.add_layer_norm_rms_eps, 1e-5)]:
        add(value)
    size = spm.get_piece_size()
    w.add_tokenizer_model("llama")
    w.add_token_list([spm.id_to_piece(i) for i in range(size)])
    w.add_token_scores([spm.get_score(i) for i in range(size)])
    w.add_token_types([kind(spm, i) for i in range(size)])
    w.add_unk_token_id(0)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_space_prefix(add_space)
    if tensors:
        w.add_tensor("token_embd.weight", np.zeros((size, 32), np.float32))
        w.add_tensor("output_norm.weight", np.ones(32, np.float32))
        for name in ["attn_norm", "ffn_norm"]:
            w.add_tensor(f"blk.0.{name}.weight", np.ones(32, np.float32))
        for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
            w.add_tensor(f"blk.0.{name}.weight", np.zeros((32, 32), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file() if tensors else w.write_ti_data_to_file()
    w.close()


def main():
    out = Path(sys.argv[1])
    how = {"made_by": "tests/data/text/make_spm.py", "date": datetime.date.today().isoformat(),
           "runtime": "llama.cpp as bundled in the PyPI wheel xllamacpp " + version("xllamacpp"),
           "vocabulary": "sentencepiece " + version("sentencepiece")}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        spm = train(folder)
        write(out / "spm-tokenizer.gguf", spm, True, False)
        ids = {}
        for add_space in (True, False):
            path = folder / f"{add_space}.gguf"
            write(path, spm, add_space, True)
            runtime = Runtime(str(path))
            ids[add_space] = [runtime.ids(text) for text in TEXTS]
            del runtime
        how["differ"] = [t for t, found in zip(TEXTS, ids[True]) if spm.encode(t) != found]
        how["pieces"] = spm.get_piece_size()
    rows = [{"text": t, "ids": a, "without_space": b} for t, a, b in zip(TEXTS, ids[True], ids[False])]
    dump(out / "spm-ids.json", how, "cases", rows)


main()
