"""The official OpenAI client against rMLX's endpoint. Prints a line for each check; any failure ends it."""

import json
import sys
import threading
import time
import urllib.request

import openai

BASE, MODEL = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="any", timeout=300)
HELLO = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]


def chat(**more):
    return client.chat.completions.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 12, "seed": 1, **more})


def running():
    with urllib.request.urlopen(f"{BASE}/health") as answer:
        return json.load(answer)["running"]


def text_of(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def models():
    assert MODEL in [model.id for model in client.models.list()]
    # The client encodes the slashes of an id.
    assert client.models.retrieve(MODEL).id == MODEL


def text():
    answer = chat()
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.model and choice.message.role == "assistant"
    assert choice.message.content and choice.finish_reason in ("stop", "length")
    assert abs(answer.created - time.time()) < 600
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and 0 < usage.completion_tokens <= 12
    assert usage.prompt_tokens_details.cached_tokens == 0
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert chat(messages=[{"role": "developer", "content": "x"}, {"role": "user", "content": parts}]).choices[0].message


def stream():
    whole = chat()
    chunks = list(chat(stream=True))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert text_of(chunks) == whole.choices[0].message.content
    assert len({chunk.id for chunk in chunks}) == 1 and all(chunk.usage is None for chunk in chunks)
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert [bool(chunk.choices) for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].usage == whole.usage and all(chunk.usage is None for chunk in chunks[:-1])
    # The client's own reader of streams.
    with client.chat.completions.stream(model=MODEL, messages=HELLO, max_tokens=12, seed=1) as helper:
        text = "".join(event.delta for event in helper if event.type == "content.delta")
    assert text == whole.choices[0].message.content


def logprobs():
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert content and all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in content)


def stop():
    whole = chat(max_tokens=40).choices[0].message.content
    mark = whole[len(whole) // 2 :][:3]
    answer = chat(max_tokens=40, stop=[mark, "never written, one hopes"]).choices[0]
    assert answer.finish_reason == "stop" and answer.message.content == whole[: whole.index(mark)]


def errors():
    def fails(kind, param, code, **more):
        try:
            chat(**more)
        except kind as error:
            assert (error.param, error.code) == (param, code), (error.param, error.code)
            assert error.type == "invalid_request_error" and error.message and error.request_id
        else:
            raise AssertionError(f"{more} was taken")

    fails(openai.NotFoundError, "model", "model_not_found", model="org/nothing")
    fails(openai.NotFoundError, "model", "model_not_found", model="org/nothing", stream=True)
    fails(openai.BadRequestError, "temperature", "invalid_value", temperature=3)
    fails(openai.BadRequestError, "messages[0].content", "invalid_type", messages=[{"role": "user", "content": 7}])
    fails(openai.BadRequestError, "n", "unsupported_parameter", n=2)
    fails(openai.BadRequestError, "response_format", "unsupported_parameter", response_format={"type": "json_object"})
    fails(openai.BadRequestError, "messages", "context_length_exceeded", messages=[{"role": "user", "content": "many words " * 20000}])


def wait_for_slots(left):
    began = time.time()
    while running() > left:
        assert time.time() - began < 60, "slots are not freed"
        time.sleep(0.02)


def read_some(count, **more):
    with chat(stream=True, max_tokens=2000, **more) as answer:
        for _ in range(count + 1):
            if next(iter(answer), None) is None:
                break


def cancel():
    read_some(3)
    wait_for_slots(0)
    assert chat().choices[0].message.content


def hang_ups():
    more = {"max_tokens": 300, "seed": 3, "temperature": 1.0}
    alone = text_of(chat(stream=True, **more))
    beside = []
    reader = threading.Thread(target=lambda: beside.append(text_of(chat(stream=True, **more))))
    reader.start()
    for seed in range(50):
        read_some(5, seed=seed)
    reader.join()
    assert beside == [alone]
    wait_for_slots(0)


for check in (models, text, stream, logprobs, stop, errors, cancel, hang_ups):
    began = time.time()
    check()
    print(f"openai-python {openai.__version__}: {check.__name__}: ok ({time.time() - began:.1f} s)", flush=True)
