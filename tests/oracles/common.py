"""What the generators share: folders, the JSON layout of `expected.json`, and how tolerances are derived."""

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"

ARCHITECTURES = ["llama", "llama3_rope", "qwen2", "qwen3", "qwen3_tied", "qwen3_yarn"]

# Affine variants of the qwen3 snapshot.
QUANTIZATIONS = {
    "qwen3-affine2": {"bits": 2, "group_size": 64},
    "qwen3-affine3": {"bits": 3, "group_size": 64},
    "qwen3-affine4": {"bits": 4, "group_size": 64},
    "qwen3-affine4_g32": {"bits": 4, "group_size": 32},
    "qwen3-affine5": {"bits": 5, "group_size": 64},
    "qwen3-affine6": {"bits": 6, "group_size": 64},
    "qwen3-affine8": {"bits": 8, "group_size": 64},
}

# Reference implementations differ from each other by a few float32 roundings; a correct engine may too.
NOISE_FACTOR = 20
ATOL_FLOOR = 3e-4
ATOL_FLOOR_QUANTIZED = 1e-3


def tolerance(noise, floor):
    """The largest difference of a logit that a test accepts: 20 times the measured rounding noise, never below `floor`."""
    return round(max(NOISE_FACTOR * noise, floor), 6)


def safe_steps(gaps, atol):
    """How many greedy steps are beyond doubt: up to the first one whose two best logits lie within 2 x atol of each other."""
    for step, gap in enumerate(gaps):
        if gap <= 2 * atol:
            return step
    return len(gaps)


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_expected(path, value):
    """One key a line, so that a diff of a fixture says which expectation moved."""
    lines = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read_json(path):
    return json.loads(Path(path).read_text())
