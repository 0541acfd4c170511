// The peer's side of scripts/bench-peer: llama.cpp on a GGUF file, on the CPU, by the same protocol as `rmlx bench`.
//
//   node peer-llama-cpp.mjs FOLDER FILE --threads N --ctx 128,512 [--tokens 128] [--chunk 2048] [--ids N | --judge FILE]
//
// FOLDER is what scripts/setup-peer printed. Prompts are the same fixed pseudo-random ids, decoding is greedy past stop tokens, and
// each context is run once to warm up and once to count. Prints one JSON object like `rmlx bench --json`; with --ids, the first N greedy ids after the first
// context instead; with --judge, how far each of a file's ids after that context is below the best.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values: options, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        threads: { type: "string" },
        ctx: { type: "string", default: "128" },
        tokens: { type: "string", default: "128" },
        chunk: { type: "string", default: "2048" },
        ids: { type: "string" },
        judge: { type: "string" },
    },
});
const [folder, file] = positionals;
if (!file || !options.threads) throw new Error("usage: peer-llama-cpp.mjs FOLDER FILE --threads N --ctx N,N");
const number = (name) => Number(options[name]);
const threads = number("threads");
const contexts = options.ctx.split(",").map(Number);
const longest = Math.max(number("tokens"), number("ids") || 0, options.judge ? 1024 : 0);

const installed = createRequire(`${folder}/package.json`).resolve("node-llama-cpp");
const { getLlama } = await import(pathToFileURL(installed));
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, progressLogs: false, maxThreads: threads, logLevel: "error" });
const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
// A context of its own for each prompt length, as large as it needs: none larger than the other side's cache.
const open = async (ctx) => {
    const context = await model.createContext({
        contextSize: ctx + longest + 8,
        batchSize: Math.min(ctx, number("chunk")),
        threads: { ideal: threads, min: threads },
    });
    if (llama.gpu !== false || context.currentThreads !== threads) {
        throw new Error(`llama.cpp would compute on ${llama.gpu || "the CPU"} with ${context.currentThreads} threads, not ${threads}`);
    }
    return context;
};

/** The generator of engine/src/worker/bench.rs. */
function prompt(n) {
    const ids = [];
    let state = 1n;
    for (let i = 0; i < n; i++) {
        state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
        ids.push(Number((state >> 33n) % BigInt(vocabulary)));
    }
    return ids;
}

async function once(sequence, ids, tokens) {
    await sequence.clearHistory();
    const stamps = [];
    const out = [];
    const start = performance.now();
    for await (const token of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
        stamps.push(performance.now());
        out.push(token);
        if (out.length === tokens) break;
    }
    const prefill = (stamps[0] - start) / 1e3;
    const decode = (stamps.at(-1) - stamps[0]) / 1e3;
    return { row: { ctx: ids.length, prefill_tok_s: ids.length / prefill, ttft_ms: prefill * 1e3, decode_tok_s: (tokens - 1) / decode }, out };
}

/** For each of `ids` after the prompt: how far its logit is below the best one, and how widely logits are spread there. */
async function judge(sequence, before, ids) {
    const want = [before.at(-1), ...ids.slice(0, -1)].map((token) => [token, { generateNext: { probabilities: true, options: { temperature: 0 } } }]);
    await sequence.clearHistory();
    const answers = await sequence.controlledEvaluate([...before.slice(0, -1), ...want]);
    const gaps = [];
    const deviations = [];
    ids.forEach((id, i) => {
        // Logarithms of probabilities are logits less a constant.
        const { probabilities } = answers[before.length - 1 + i].next;
        const logs = [...probabilities.values()].filter((p) => p > 0).map(Math.log);
        const best = logs.reduce((a, b) => Math.max(a, b));
        const mean = logs.reduce((a, b) => a + b, 0) / logs.length;
        deviations.push(logs.reduce((a, b) => a + (b - mean) ** 2, 0) / logs.length);
        gaps.push(best - Math.log(probabilities.get(id)));
    });
    return { gaps, deviation: Math.sqrt(deviations.reduce((a, b) => a + b, 0) / deviations.length) };
}

let answer;
if (options.judge || options.ids) {
    const context = await open(contexts[0]);
    const sequence = context.getSequence();
    answer = options.judge
        ? await judge(sequence, prompt(contexts[0]), JSON.parse(readFileSync(options.judge)))
        : { token_ids: (await once(sequence, prompt(contexts[0]), number("ids"))).out };
} else {
    const rows = [];
    for (const ctx of contexts) {
        const context = await open(ctx);
        const sequence = context.getSequence();
        await once(sequence, prompt(ctx), number("tokens"));
        rows.push((await once(sequence, prompt(ctx), number("tokens"))).row);
        await context.dispose();
    }
    answer = { model: file, device: "cpu", threads, llama_cpp: llama.llamaCppRelease.release, rows };
}
console.log(JSON.stringify(answer));
await llama.dispose();
