"""A byte-level BPE tokenizer of 512 entries in the layout of Qwen's, trained here on a few lines of text."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from common import HERE, write_json

VOCAB_SIZE = 512  # rows of the embedding: a multiple of 64, so that every matrix can be quantized
TOKENIZER_SIZE = 500  # the tokenizer ends earlier, as it does in published models

CORPUS = """
The quick brown fox jumps over the lazy dog while 12345 sheep count 67890 stars in the night sky.
What is the capital of France? The capital of France is Paris, and the capital of Japan is Tokyo.
Write a short poem about the sea, the wind and the mountains. Describe the image. Transcribe the audio.
def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(i, add(i, 1))\n
You are a helpful assistant. Answer briefly and clearly. Think step by step before answering.
El zorro marrón salta sobre el perro perezoso. Où est la bibliothèque? Ça va très bien, merci.
日本語のテキストです。今日は天気がいいですね。 中文文本：今天天气很好。 한국어 텍스트입니다.
Привет, мир! Как дела? नमस्ते दुनिया। สวัสดีชาวโลก
I'm, you're, they've, we'll, he'd, it's, DON'T, WON'T. Numbers: 3.14159, 2.71828, 1,000,000.
{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}
user assistant system model tool thought seconds image audio video
"""

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]
ADDED = [
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
]

VISION_TOKENS = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
}
CONFIG = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "bos_token": None,
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "errors": "replace",
    "model_max_length": 131072,
    "pad_token": "<|endoftext|>",
    "split_special_tokens": False,
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": None,
    **VISION_TOKENS,
    "extra_special_tokens": VISION_TOKENS,
    "x_original_tokenizer_class": "Qwen2Tokenizer",
}


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_SIZE - len(SPECIAL) - len(ADDED),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # sorted: else the ids follow the hash order
    )
    tokenizer.train_from_iterator(CORPUS.split("\n") + [CORPUS], trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    return tokenizer


def save(tokenizer, folder):
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", CONFIG)
    (folder / "chat_template.jinja").write_text((HERE / "chat_template.jinja").read_text())


def ids_never_generated(tokenizer):
    """Added tokens, and the rows of the embedding behind the tokenizer's end."""
    return list(tokenizer.get_added_tokens_decoder()) + list(range(tokenizer.get_vocab_size(), VOCAB_SIZE))
