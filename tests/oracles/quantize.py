#!/usr/bin/env python3
"""quantize.py --out DIR [VARIANT...]: affine-quantized variants of DIR/qwen3 and what mlx-lm computes from them.

Writes DIR/quant/VARIANT/: the quantized snapshot, expected.safetensors and expected.json. Activations are float32, on the CPU.
"""

import argparse
import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import mlx.core as mx
import mlx_lm
import numpy as np
import torch
import transformers
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from safetensors.numpy import load_file, save_file

from common import ATOL_FLOOR_QUANTIZED, QUANTIZATIONS, read_json, safe_steps, tolerance, write_expected

mx.set_default_device(mx.cpu)
transformers.utils.logging.disable_progress_bar()

SOURCE = "qwen3"
STEPS = 32
# Modules whose weights are recorded dequantized, to test the unpacking alone: different shapes, and the widest rows.
DEQUANTIZED = ["lm_head", "model.layers.2.mlp.up_proj", "model.layers.2.mlp.down_proj"]


def widened(model):
    """All floating-point parameters as float32: bf16 weights, norms, scales and biases lose nothing."""
    widen = lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p
    model.update(tree_map(widen, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


def logits(model, ids, cache=None):
    return np.array(model(mx.array(ids)[None], cache=cache))[0]


def greedy(model, prompt):
    ids, gaps, feed, cache = [], [], prompt, make_prompt_cache(model)
    for _ in range(STEPS):
        last = logits(model, feed, cache)[-1]
        second, first = np.sort(last)[-2:]
        gaps.append(float(first - second))
        ids.append(int(last.argmax()))
        feed = ids[-1:]
    return ids, gaps


def dequantized(model):
    """`weight` of every quantized module in float32, from float32 scales and biases."""
    return {
        f"{path}.weight": np.array(
            mx.dequantize(m.weight, m.scales, m.biases, group_size=m.group_size, bits=m.bits, mode=m.mode)
        )
        for path, m in model.named_modules()
        if hasattr(m, "scales")
    }


@torch.no_grad()
def exact_logits(source, weights, prompt):
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float64).eval()
    model.load_state_dict({k: torch.from_numpy(v).double() for k, v in weights.items()}, strict=False)
    return model(input_ids=torch.from_numpy(prompt), use_cache=False).logits[0].numpy()


def make(variant, source, folder):
    settings = QUANTIZATIONS[variant]
    folder.mkdir(parents=True)
    model, config = load_model(source, lazy=False)
    model, config = quantize_model(model, config, settings["group_size"], settings["bits"], mode="affine")
    save_model(folder, model, donate_model=False)
    save_config(config, folder / "config.json")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(source / file, folder / file)

    model = widened(load_model(folder, lazy=False)[0])
    prompt = load_file(source / "expected.safetensors")["input_ids"]
    all_logits = logits(model, prompt[0])
    ids, gaps = greedy(model, prompt[0])

    # A second opinion and the rounding noise: the dequantized weights in transformers, in float64.
    weights = dequantized(model)
    noise = float(np.abs(all_logits - exact_logits(source, weights, prompt)).max())
    assert noise < ATOL_FLOOR_QUANTIZED / 5, noise

    atol = tolerance(noise, ATOL_FLOOR_QUANTIZED)
    tensors = {
        "input_ids": prompt,
        "logits": all_logits,
        "greedy_ids": np.array(ids),
        "greedy_gaps": np.array(gaps, np.float32),
        **{f"dequant.{path}.weight": weights[f"{path}.weight"] for path in DEQUANTIZED},
    }
    save_file(tensors, folder / "expected.safetensors")
    write_expected(folder / "expected.json", {
        "arch": SOURCE,
        **settings,
        "mode": "affine",
        "greedy_safe_steps": safe_steps(gaps, atol),
        "min_gap": min(gaps),
        "atol": atol,
        "f32_vs_f64_max_abs": noise,
        "versions": {"mlx": mx.__version__, "mlx-lm": mlx_lm.__version__},
    })
    return read_json(folder / "expected.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("variant", nargs="*", metavar="VARIANT", default=list(QUANTIZATIONS))
    args = parser.parse_args()
    for variant in args.variant:
        if variant not in QUANTIZATIONS:
            parser.error(f"unknown variant {variant}; known: {', '.join(QUANTIZATIONS)}")
    for variant in args.variant:
        folder = args.out / "quant" / variant
        shutil.rmtree(folder, ignore_errors=True)
        facts = make(variant, args.out / SOURCE, folder)
        print(f"{variant}: atol {facts['atol']}, noise {facts['f32_vs_f64_max_abs']:.1e},"
              f" smallest gap {facts['min_gap']:.4f}, {facts['greedy_safe_steps']} safe steps", flush=True)


if __name__ == "__main__":
    main()
