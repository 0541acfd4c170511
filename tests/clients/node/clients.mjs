// The official OpenAI client against rMLX's endpoint. Prints a line for each check; any failure ends it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

// Installed outside the repository.
const require = createRequire(path.join(process.env.CLIENTS, "package.json"));
const OpenAI = require("openai");
const version = require("openai/version").VERSION;

const [base, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", timeout: 300_000 });
const messages = [{ role: "system", content: "Be short." }, { role: "user", content: "Hello" }];
const chat = (more = {}, options) => client.chat.completions.create({ model, messages, max_tokens: 12, seed: 1, ...more }, options);
const running = async () => (await (await fetch(`${base}/health`)).json()).running;

async function all(stream) {
  const chunks = [];
  for await (const chunk of await stream) chunks.push(chunk);
  return chunks;
}
const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

async function waitForSlots() {
  for (const began = Date.now(); (await running()) > 0; ) {
    assert(Date.now() - began < 60_000, "slots are not freed");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function readSome(count, more = {}) {
  const stream = await chat({ stream: true, max_tokens: 2000, ...more });
  let read = 0;
  for await (const _ of stream) {
    if (++read > count) break;
  }
  stream.controller.abort();
}

const checks = {
  async models() {
    assert((await all(client.models.list())).some((one) => one.id === model));
    assert.equal((await client.models.retrieve(model)).id, model);
  },

  async text() {
    const answer = await chat();
    assert.equal(answer.object, "chat.completion");
    assert.equal(answer.choices[0].message.role, "assistant");
    assert(answer.choices[0].message.content);
    const { usage } = answer;
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.equal(usage.prompt_tokens_details.cached_tokens, 0);
  },

  async stream() {
    const whole = await chat();
    const chunks = await all(chat({ stream: true }));
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.equal(chunks[0].choices[0].delta.role, "assistant");
    assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
    assert(chunks.every((chunk) => chunk.usage === undefined));
    const counted = await all(chat({ stream: true, stream_options: { include_usage: true } }));
    assert.deepEqual(counted.at(-1).choices, []);
    assert.deepEqual(counted.at(-1).usage, whole.usage);
    const helper = client.chat.completions.stream({ model, messages, max_tokens: 12, seed: 1 });
    assert.equal(await helper.finalContent(), whole.choices[0].message.content);
  },

  async stop() {
    const whole = (await chat({ max_tokens: 40 })).choices[0].message.content;
    const half = Math.floor([...whole].length / 2);
    const mark = [...whole].slice(half, half + 3).join("");
    const answer = (await chat({ max_tokens: 40, stop: [mark] })).choices[0];
    assert.equal(answer.finish_reason, "stop");
    assert.equal(answer.message.content, whole.slice(0, whole.indexOf(mark)));
  },

  async errors() {
    const fails = async (kind, param, code, more) => {
      await assert.rejects(chat(more), (error) => {
        assert(error instanceof kind, String(error));
        assert.deepEqual([error.param, error.code, error.type], [param, code, "invalid_request_error"]);
        assert(error.requestID);
        return true;
      });
    };
    await fails(OpenAI.NotFoundError, "model", "model_not_found", { model: "org/nothing" });
    await fails(OpenAI.NotFoundError, "model", "model_not_found", { model: "org/nothing", stream: true });
    await fails(OpenAI.BadRequestError, "temperature", "invalid_value", { temperature: 3 });
    await fails(OpenAI.BadRequestError, "n", "unsupported_parameter", { n: 2 });
    await fails(OpenAI.BadRequestError, "messages", "context_length_exceeded", {
      messages: [{ role: "user", content: "many words ".repeat(20_000) }],
    });
  },

  async cancel() {
    await readSome(3);
    await waitForSlots();
    const abort = new AbortController();
    const pending = chat({ max_tokens: 2000 }, { signal: abort.signal });
    setTimeout(() => abort.abort(), 50);
    await pending.catch((error) => assert(error instanceof OpenAI.APIUserAbortError, String(error)));
    await waitForSlots();
    assert((await chat()).choices[0].message.content);
  },

  async hangUps() {
    const more = { stream: true, max_tokens: 300, seed: 3, temperature: 1 };
    const alone = textOf(await all(chat(more)));
    const beside = all(chat(more));
    for (let seed = 0; seed < 50; seed++) await readSome(5, { seed });
    assert.equal(textOf(await beside), alone);
    await waitForSlots();
  },
};

for (const [name, check] of Object.entries(checks)) {
  const began = Date.now();
  await check();
  console.log(`openai-node ${version}: ${name}: ok (${((Date.now() - began) / 1000).toFixed(1)} s)`);
}
