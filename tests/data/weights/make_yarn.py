"""Makes yarn.json: YaRN's frequencies and rotations by the function of `transformers`, run in f64.

    python3 -m venv /tmp/refs && /tmp/refs/bin/pip install transformers numpy
    /tmp/refs/bin/python tests/data/weights/make_yarn.py tests/data/weights

The function is taken from the installed package and given numpy's f64 arrays in the place of torch's f32 tensors. Each case has
the parameters, the angle per position of every eighth pair, the factor of cos and sin, and [position, pair, cos, sin].
"""
import inspect, json, math, sys, types
from importlib.metadata import version
from pathlib import Path

import numpy as np
from transformers import modeling_rope_utils


class Array(np.ndarray):
    def to(self, device=None, dtype=None):
        return self


def arange(*bounds, dtype=None):
    return np.arange(*bounds).astype(np.float64).view(Array)


torch = types.SimpleNamespace(arange=arange, clamp=np.clip, float=None, float32=None)


def parameters(head_dim, rope):
    text = inspect.getsource(modeling_rope_utils._compute_yarn_parameters)
    scope = {"torch": torch, "math": math, "Optional": __import__("typing").Optional}
    exec(text, scope)
    config = types.SimpleNamespace(head_dim=head_dim, hidden_size=head_dim, num_attention_heads=1, rope_parameters=rope,
                                   max_position_embeddings=40960, standardize_rope_params=lambda: None)
    return scope["_compute_yarn_parameters"](config)


CASES = [
    # What Qwen3's model card asks for past 32k tokens.
    (128, {"rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}),
    (64, {"rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 4096, "beta_fast": 16.0, "beta_slow": 2.0}),
    (64, {"rope_theta": 5e5, "factor": 2.5, "original_max_position_embeddings": 8192, "truncate": False}),
    (128, {"rope_theta": 1e5, "factor": 8.0, "original_max_position_embeddings": 4096, "mscale": 1.5, "mscale_all_dim": 0.8}),
    (16, {"rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 0.9}),
]


def main():
    cases = []
    for head_dim, rope in CASES:
        rope = {"rope_type": "yarn"} | rope
        theta, attention = parameters(head_dim, rope)
        rotations = []
        for position in (1, 1000, 131071):
            for pair in range(0, head_dim // 2, 8):
                angle = position * float(theta[pair])
                rotations.append([position, pair, math.cos(angle) * attention, math.sin(angle) * attention])
        cases.append({"head_dim": head_dim, "rope": rope, "theta": [float(t) for t in theta[::8]], "attention": attention,
                      "rotations": rotations})
    out = {"made_with": {"transformers": version("transformers")}, "cases": cases}
    Path(sys.argv[1], "yarn.json").write_text(json.dumps(out) + "\n")


main()
