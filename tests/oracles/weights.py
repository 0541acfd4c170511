"""Random weights that are the same on every machine: one numpy stream per tensor, keyed by (seed, crc32 of its name)."""

import math
import zlib

import numpy as np
import torch

EMBEDDING_STD = 0.45
QUIET_ROW = 0.02  # scale of embedding rows that should never win the argmax


@torch.no_grad()
def fill(model, seed, quiet_ids, out_gain=1.0):
    """Fill every parameter with values that bf16 holds exactly, so that the stored snapshot computes the same in float32.

    `out_gain` strengthens what a layer adds to the residual stream; with tied embeddings the input token would win otherwise.
    """
    for name, parameter in model.named_parameters():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        noise = torch.from_numpy(rng.standard_normal(tuple(parameter.shape)).astype(np.float32))
        if name.endswith(".bias"):
            value = noise * 0.1
        elif parameter.ndim == 1:  # norms
            value = 1 + 0.2 * noise
        elif "embed_tokens" in name or "lm_head" in name:
            value = noise * EMBEDDING_STD
            value[quiet_ids] *= QUIET_ROW
        else:
            value = noise * (gain(name, out_gain) / math.sqrt(parameter.shape[1]))
        parameter.copy_(value.to(torch.bfloat16))


def gain(name, out_gain):
    if "q_proj" in name or "k_proj" in name:
        return 1.3  # attention that looks at some positions more than at others
    if "o_proj" in name or "down_proj" in name:
        return out_gain
    return 1.0
