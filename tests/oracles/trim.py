#!/usr/bin/env python3
"""trim.py OUT: cut what make_tiny.py and quantize.py wrote down to what the tests assert, into fixtures/oracles.

With --check nothing is written: every fixture is compared with what would be written, and a difference ends with exit code 1.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from common import ARCHITECTURES, FIXTURES, QUANTIZATIONS, read_json, write_expected

SNAPSHOT = [
    "config.json", "generation_config.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
]
LAST_POSITIONS = 16
DEQUANTIZED_ROWS = 8


def pick(facts, *keys):
    return {key: facts[key] for key in keys}


def trim_architecture(source, target):
    for file in SNAPSHOT:
        shutil.copyfile(source / file, target / file)
    tensors = load_file(source / "expected.safetensors")
    save_file(pick(tensors, "input_ids", "logits", "greedy_ids", "greedy_gaps"), target / "expected.safetensors")
    facts = read_json(source / "expected.json")
    keys = ("arch", "seed", "prompt_text", "stop_token_ids", "greedy_ids", "greedy_safe_steps", "atol", "versions")
    write_expected(target / "expected.json", pick(facts, *keys))


def trim_quantized(source, target):
    tensors = load_file(source / "expected.safetensors")
    kept = {"logits": tensors["logits"][-LAST_POSITIONS:], "greedy_ids": tensors["greedy_ids"]}
    kept |= {name: value[:DEQUANTIZED_ROWS] for name, value in tensors.items() if name.startswith("dequant.")}
    save_file({name: np.ascontiguousarray(value) for name, value in kept.items()}, target / "expected.safetensors")
    facts = read_json(source / "expected.json")
    length = len(tensors["logits"])
    write_expected(target / "expected.json", {
        **pick(facts, "arch", "bits", "group_size", "mode"),
        "logits_positions": [length - LAST_POSITIONS, length],  # of the prompt of `arch`; the end is exclusive
        "dequantized_rows": [0, DEQUANTIZED_ROWS],
        **pick(facts, "greedy_safe_steps", "min_gap", "atol", "versions"),
    })


def trim(out, target):
    """Trims what `out` has; returns the folders written, relative to `target`."""
    jobs = [(name, trim_architecture) for name in ARCHITECTURES]
    jobs += [(f"quant/{name}", trim_quantized) for name in QUANTIZATIONS]
    done = []
    for name, trim_one in jobs:
        if (out / name / "expected.json").exists():
            (target / name).mkdir(parents=True, exist_ok=True)
            trim_one(out / name, target / name)
            done.append(name)
    return done


def differences(fresh, kept):
    """One line for each file that is not byte for byte the same; for tensors, by how much."""
    for file in sorted(fresh.iterdir()):
        other = kept / file.name
        if not other.exists():
            yield f"{other}: missing"
        elif file.read_bytes() != other.read_bytes():
            yield f"{other}: {compare(file, other)}"
    for other in sorted(kept.iterdir()):
        if not (fresh / other.name).exists():
            yield f"{other}: not made by trim.py"


def compare(file, other):
    if file.name != "expected.safetensors":
        return "differs"
    a, b = load_file(file), load_file(other)
    if {k: (v.shape, v.dtype) for k, v in a.items()} != {k: (v.shape, v.dtype) for k, v in b.items()}:
        return "other tensors, shapes or types"
    changed = {k: float(np.abs(a[k] - b[k]).max()) for k in a if not np.array_equal(a[k], b[k])}
    return "differs by at most " + ", ".join(f"{v:.1e} in {k}" for k, v in changed.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the fixtures instead of writing them")
    args = parser.parse_args()
    fixtures = FIXTURES / "oracles"
    if not args.check:
        done = trim(args.out, fixtures)
        print(f"{len(done)} written: {' '.join(done)}")
        return
    with tempfile.TemporaryDirectory() as folder:
        done = trim(args.out, Path(folder))
        found = [line for name in done for line in differences(Path(folder) / name, fixtures / name)]
    print("\n".join(found + [f"{len(done)} checked, {len(found)} files differ"]))
    sys.exit(bool(found) or not done)


if __name__ == "__main__":
    main()
