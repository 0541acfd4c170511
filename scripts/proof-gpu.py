"""Runs on the GPU machine: rMLX's binary on MLX's GPU build against the references.

    proof-gpu.py RMLX FIXTURES

1. f32: greedy ids on every oracle equal the reference's (TF32 off).
2. bf16: logits within BOUND of the reference's, relative to their spread.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ORACLES = ["llama", "llama3_rope", "qwen2", "qwen3", "qwen3_tied", "qwen3_yarn"]
BOUND = 0.08  # root mean square of the difference over the standard deviation of the logits

rmlx, fixtures = sys.argv[1], Path(sys.argv[2])
exact = dict(os.environ, MLX_ENABLE_TF32="0")


def tensors(path):
    raw = Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F32": np.float32, "I64": np.int64, "I32": np.int32}
    return {k: np.frombuffer(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]], kinds[v["dtype"]]).reshape(v["shape"])
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__" and v["dtype"] in kinds}


def run(*args, env=None):
    done = subprocess.run([rmlx, *map(str, args)], capture_output=True, text=True, env=env or os.environ)
    if done.returncode != 0:
        sys.exit(f"rmlx {' '.join(map(str, args))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


failed = 0
for name in ORACLES:
    folder = fixtures / "oracles" / name
    reference = tensors(folder / "expected.safetensors")
    expected = json.loads((folder / "expected.json").read_text())
    with tempfile.TemporaryDirectory() as tmp:
        ids = Path(tmp) / "ids.json"
        ids.write_text(json.dumps(reference["input_ids"].reshape(-1).tolist()))
        steps = expected["greedy_safe_steps"]
        out = run("run", folder, "--device", "gpu", "--dtype", "f32", "--prompt-ids", ids, "--temperature", 0, "--ignore-eos",
                  "--max-tokens", steps, "--emit-token-ids", env=exact)
        got = json.loads(out.strip().splitlines()[-1])["token_ids"]
        same = got == expected["greedy_ids"][:steps]
        errors = {}
        for dtype in ["f32", "bf16"]:
            run("logits", folder, "--device", "gpu", "--dtype", dtype, "--prompt-ids", ids, "--out", Path(tmp) / "l.safetensors", env=exact)
            logits = tensors(Path(tmp) / "l.safetensors")["logits"]
            want = reference["logits"].reshape(logits.shape)
            errors[dtype] = float(np.sqrt(np.mean((logits - want) ** 2)) / want.std()), float(np.abs(logits - want).max())
    ok = same and errors["f32"][1] <= expected["atol"] and errors["bf16"][0] <= BOUND
    failed += not ok
    print(f"{name:12} f32 greedy {'equal' if same else 'DIFFERENT'} over {steps}, f32 max error {errors['f32'][1]:.1e} (allowed {expected['atol']:.1e}), "
          f"bf16 relative error {errors['bf16'][0]:.4f} (allowed {BOUND}): {'ok' if ok else 'FAILED'}")
print(f"{len(ORACLES) - failed} passed, {failed} failed")
sys.exit(failed > 0)
