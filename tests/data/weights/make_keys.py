"""Makes keys.json: every key that other programs know of the two formats, for these families.

    python3 -m venv /tmp/refs && /tmp/refs/bin/pip install gguf transformers xllamacpp
    /tmp/refs/bin/python tests/data/weights/make_keys.py tests/data/weights

gguf: the tables of the `gguf` package and, as text in its library, of llama.cpp (by way of `xllamacpp`). hf: the fields of
`transformers`' configurations and its names of rope parameters, the arguments of its tokenizers, and the top level of a
`tokenizer.json`, which the `tokenizers` package writes.
"""
import importlib.util, inspect, json, re, sys
from importlib.metadata import version
from pathlib import Path

import gguf
import tokenizers
import transformers
from transformers import LlamaConfig, PreTrainedTokenizerFast, Qwen3Config
from transformers.modeling_rope_utils import RopeParameters


def strings(node):
    for name, value in vars(node).items():
        if name.startswith("_"):
            continue
        if isinstance(value, str):
            yield value
        elif inspect.isclass(value):
            yield from strings(value)


def llama_cpp():
    folder = Path(importlib.util.find_spec("xllamacpp").submodule_search_locations[0])
    library = next(folder.glob("*.so")).read_bytes()
    found = re.findall(rb"\0((?:%s\.|tokenizer\.)[a-z_.0-9]+)(?=\0)", library)
    # Names of tensors and of other things have the same form.
    other = re.compile(r"^(%s\.(\.*|.*\.weight|proj_query)|tokenizer\.)$")
    return {key.decode() for key in found if not other.match(key.decode())}


def gguf_keys():
    names = set(strings(gguf.constants.Keys)) | llama_cpp()
    names = {n.replace("%s.", "{arch}.").replace("{id}", "0").replace("{name}", "tool_use") for n in names}
    names = {m for n in names for m in ([n.replace("{dense}", d) for d in ("dense_2", "dense_3")])}
    arch = sorted(n.removeprefix("{arch}.") for n in names if n.startswith("{arch}."))
    tokenizer = sorted(n for n in names if n.startswith("tokenizer."))
    return {"arch": arch, "tokenizer": tokenizer, "general": sorted(names - {"{arch}." + n for n in arch} - set(tokenizer))}


def hf_keys():
    config = set()
    for kind in (LlamaConfig, Qwen3Config):
        config |= set(kind().to_dict()) | set(inspect.signature(kind).parameters) - {"kwargs", "args"}
    # Spellings of earlier versions, which published files have.
    config |= {"rope_scaling", "rope_theta", "torch_dtype", "quantization_config", "partial_rotary_factor"}
    fast = {"name_or_path"}
    for kind in PreTrainedTokenizerFast.__mro__:
        fast |= set(inspect.signature(kind.__init__).parameters) if kind is not object else set()
        text = inspect.getsource(kind) if kind.__module__.startswith("transformers") else ""
        fast |= set(re.findall(r"kwargs\.(?:pop|get|setdefault)\(\s*\"([a-z_]+)\"", text))
    fast |= set(PreTrainedTokenizerFast.SPECIAL_TOKENS_ATTRIBUTES) | {"tokenizer_class", "added_tokens_decoder"}
    # Arguments of calls, not of construction.
    fast -= {"self", "args", "kwargs", "return_tensors", "cache_dir", "force_download", "proxies", "token", "gguf_file", "images",
             "commit_message", "files_loaded", "max_len", "max_target_length", "padding", "post_processor", "repo_id",
             "save_jinja_files", "tokenizer", "tokenizer_padding", "tokenizer_truncation", "truncation", "unk_id",
             "use_source_tokenizer"}
    fast -= {n for n in fast if n.startswith("_") and n != "_commit_hash"}
    written = json.loads(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())
    return {"config": sorted(config), "rope": sorted(RopeParameters.__annotations__), "tokenizer_config": sorted(fast),
            "tokenizer": sorted(written)}


def main():
    with_version = ["gguf", "transformers", "tokenizers", "xllamacpp"]
    out = {"made_with": {name: version(name) for name in with_version}, "gguf": gguf_keys(), "hf": hf_keys()}
    Path(sys.argv[1], "keys.json").write_text(json.dumps(out, indent=1) + "\n")


main()
