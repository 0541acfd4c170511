"""The peer's side of scripts/bench-peer: mlx-lm on a snapshot, by the same protocol as `rmlx bench`.

    peer-mlx-lm.py FOLDER --ctx 128,4096 [--tokens 128] [--runs 1] [--chunk 2048] [--ids N] [--cpu] [--unpack FOLDER]

Prompts are the same fixed pseudo-random ids, decoding is greedy past stop tokens, one run per context is thrown away. Prints one
JSON object like `rmlx bench --json`; with --ids, the first N greedy ids after the first context instead. Needs mlx and mlx-lm.
"""
import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step
from mlx_lm.models import llama, qwen2, qwen3
from mlx_lm.models.cache import make_prompt_cache

FAMILIES = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3}


def load(folder, f32):
    config = json.loads((folder / "config.json").read_text())
    family = FAMILIES[config["model_type"]]
    model = family.Model(family.ModelArgs.from_dict(config))
    weights = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights.update(mx.load(str(file)))
    q = config.get("quantization")
    if q:
        def how(path, module):
            if not hasattr(module, "to_quantized") or f"{path}.scales" not in weights:
                return False
            own = q.get(path, q)
            return {"group_size": own["group_size"], "bits": own["bits"]}
        nn.quantize(model, group_size=q["group_size"], bits=q["bits"], class_predicate=how)
    model.load_weights(list(model.sanitize(weights).items() if hasattr(model, "sanitize") else weights.items()))
    if f32:
        model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model, config["vocab_size"]


def prompt(n, vocabulary):
    """The generator of engine/src/worker/bench.rs."""
    state, ids = 1, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocabulary)
    return mx.array(ids)


def once(model, ids, tokens, chunk):
    mx.clear_cache()
    mx.reset_peak_memory()
    cache = make_prompt_cache(model)
    start, stamps, out = time.perf_counter(), [], []
    for token, _ in generate_step(ids, model, max_tokens=tokens, prompt_cache=cache, prefill_step_size=chunk):
        stamps.append(time.perf_counter())
        out.append(int(token))
    prefill, decode = stamps[0] - start, stamps[-1] - stamps[0]
    kv = sum(a.nbytes for layer in cache for a in (layer.keys, layer.values))
    row = dict(ctx=len(ids), prefill_tok_s=len(ids) / prefill, ttft_ms=prefill * 1e3, decode_tok_s=(tokens - 1) / decode,
               kv_bytes=kv, peak_bytes=mx.get_peak_memory())
    return row, out


def unpack(folder, to):
    """The snapshot with every packed matrix as f32, for the arm of rMLX that computes with such."""
    config = json.loads((folder / "config.json").read_text())
    quantization = config.pop("quantization")
    config.pop("quantization_config", None)
    config.update(torch_dtype="float32", dtype="float32")
    packed, plain = {}, {}
    for file in sorted(folder.glob("model*.safetensors")):
        packed.update(mx.load(str(file)))
    for name, tensor in packed.items():
        path, _, kind = name.rpartition(".")
        if f"{path}.scales" not in packed:
            plain[name] = tensor.astype(mx.float32)
        elif kind == "weight":
            own = quantization.get(path, quantization)
            scales, biases = (packed[f"{path}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            plain[name] = mx.dequantize(tensor, scales, biases, group_size=own["group_size"], bits=own["bits"])
    to.mkdir()
    mx.save_safetensors(str(to / "model.safetensors"), plain, {"format": "mlx"})
    (to / "config.json").write_text(json.dumps(config))
    for file in folder.iterdir():
        if file.name != "config.json" and not file.name.startswith("model"):
            shutil.copy(file, to)


def bandwidth():
    x = mx.zeros((1 << 30,), mx.bfloat16)
    mx.eval(x)
    times = []
    for _ in range(12):
        start = time.perf_counter()
        mx.eval(x + 1)
        times.append(time.perf_counter() - start)
    return 2 * x.nbytes / statistics.median(times[2:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path)
    p.add_argument("--ctx", default="128")
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--runs", type=int, default=1)
    p.add_argument("--chunk", type=int, default=2048)
    p.add_argument("--ids", type=int)
    p.add_argument("--judge", type=Path, help="a JSON list of ids that followed the first context: how far each is below the best")
    p.add_argument("--cpu", action="store_true", help="on the CPU, in f32")
    p.add_argument("--unpack", type=Path, help="write the snapshot with f32 matrices to this folder instead")
    p.add_argument("--bandwidth", action="store_true", help="measure a large copy instead: bytes read and written per second")
    a = p.parse_args()
    if a.cpu:
        mx.set_default_device(mx.cpu)
        mx.disable_compile()
    if a.bandwidth:
        print(json.dumps(dict(bytes_per_second=bandwidth())))
        return
    if a.unpack:
        unpack(a.folder, a.unpack)
        return
    model, vocabulary = load(a.folder, a.cpu)
    contexts = [int(c) for c in a.ctx.split(",")]
    if a.judge:
        ours = json.loads(a.judge.read_text())
        tokens = mx.concatenate([prompt(contexts[0], vocabulary), mx.array(ours)])[None]
        logits = model(tokens)[0, contexts[0] - 1:-1].astype(mx.float32)
        gaps = logits.max(axis=-1) - mx.take_along_axis(logits, mx.array(ours)[:, None], axis=-1)[:, 0]
        print(json.dumps(dict(gaps=gaps.tolist(), deviation=float(logits.std()))))
        return
    if a.ids:
        print(json.dumps(dict(token_ids=once(model, prompt(contexts[0], vocabulary), a.ids, a.chunk)[1])))
        return
    rows = []
    for ctx in contexts:
        ids = prompt(ctx, vocabulary)
        once(model, ids, a.tokens, a.chunk)
        runs = [once(model, ids, a.tokens, a.chunk)[0] for _ in range(a.runs)]
        rows.append({k: statistics.median(r[k] for r in runs) for k in runs[0]})
    print(json.dumps(dict(model=str(a.folder), device=str(mx.default_device()), mlx_version=mx.__version__, rows=rows)))


main()
