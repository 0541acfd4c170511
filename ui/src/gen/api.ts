// Made from engine/src/api.rs by its test. Do not edit.

export type Activity = { state: ActivityState, 
/**
 * The resident model.
 */
model: string | null, 
/**
 * The model that is being loaded.
 */
loading: string | null, 
/**
 * Answers in flight.
 */
running: number, 
/**
 * Of the last load or answer that failed (not: was cancelled), until the next one begins.
 */
error: ErrorInfo | null, };

export type ActivityState = "idle" | "loading" | "busy" | "error";

export type AnswerInfo = { model: string, state: AnswerState, 
/**
 * Of an answer that was not cut off.
 */
finished: Finished | null, 
/**
 * Why it failed.
 */
error: ErrorInfo | null, };

export type AnswerState = "unfinished" | "complete" | "stopped" | "failed";

export type Ask = { "type": "new", text: string, } | { "type": "edit", message: number, text: string, } | { "type": "retry", message: number, };

export type CatalogueEntry = { repo: string, title: string, task: Task, 
/**
 * Memory of the machine that it is meant for, in GB (10^9 bytes).
 */
memory_gb: number, 
/**
 * Why it is in the list.
 */
why: string, 
/**
 * Of a revision that was looked at; `None`: not yet.
 */
commit: string | null, bytes: number | null, license: string | null, 
/**
 * It was fetched and answered with this version of rMLX.
 */
verified: boolean, 
/**
 * The one to suggest for its task on this machine.
 */
recommended: boolean, here: boolean, };

export type ChatSettings = { 
/**
 * The system message of every conversation; empty: none.
 */
system: string, 
/**
 * `None`: what the model's publisher recommends.
 */
temperature: number | null, 
/**
 * `None`: until the model ends or the context is full.
 */
max_tokens: number | null, };

export type ConversationEntry = { id: number, title: string, 
/**
 * The model that answered last.
 */
model: string | null, 
/**
 * Milliseconds since 1970.
 */
created_ms: number, updated_ms: number, 
/**
 * Of a search: where the text was found.
 */
found: Found | null, };

export type DiskRoom = { free: number, 
/**
 * What is kept free for everything else.
 */
reserve: number, 
/**
 * `to_fetch + reserve <= free`
 */
fits: boolean, };

export type EndpointSettings = { enabled: boolean, port: number, };

export type EndpointState = { "state": "off" } | { "state": "on", 
/**
 * The base address without a path: `http://127.0.0.1:8080`.
 */
url: string, } | { "state": "failed", error: ErrorInfo, 
/**
 * A port that is free, when the chosen one is taken.
 */
next_port: number | null, };

export type ErrorInfo = { 
/**
 * [`crate::error::Error::code`].
 */
code: string, message: string, };

export type Event = { "type": "loading", stage: LoadStage, done: number, total: number, } | { "type": "loaded" } | { "type": "prefill", done: number, total: number, } | { "type": "text", delta: string, } | { "type": "token", id: number, logprob: TokenLogprob | null, } | { "type": "finished" } & Finished | { "type": "failed" } & ErrorInfo;

export type FileCheck = { name: string, bytes: number, state: FileState, };

export type FileState = "right" | "wrong" | "missing" | "unknown";

export type FinishReason = "stop" | "length";

export type Finished = { reason: FinishReason, 
/**
 * The stop text that ended the answer.
 */
stop: string | null, usage: Usage, timings: Timings, 
/**
 * Bytes of this sequence's KV cache when it ended.
 */
kv_bytes: number, };

export type Found = { 
/**
 * `None`: in the title.
 */
message: number | null, 
/**
 * Text around the match. `\u{2}` and `\u{3}` stand before and after what matched.
 */
snippet: string, };

export type HubModel = { repo: string, downloads: number | null, likes: number | null, 
/**
 * As the hub calls it (`text-generation`).
 */
task: string | null, license: string | null, gated: boolean, 
/**
 * RFC 3339.
 */
updated: string | null, 
/**
 * Why it cannot run here, where the listing alone shows that.
 */
problem: string | null, 
/**
 * A whole snapshot of it is on this machine.
 */
here: boolean, };

export type LoadStage = "inspect" | "weights" | "warmup";

export type MemoryNeed = { weights: number, 
/**
 * KV cache of `context` tokens.
 */
kv: number, context: number, workspace: number, 
/**
 * What this machine could give at this moment.
 */
headroom: number, fits: boolean, };

export type ModelEntry = { 
/**
 * What `load` takes.
 */
name: string, folder: string, 
/**
 * Size of its files.
 */
bytes: number, 
/**
 * `None`: its configuration names none.
 */
architecture: string | null, 
/**
 * Such as `affine 4-bit, group 64`; `None`: not quantized.
 */
quantization: string | null, source: ModelSource, 
/**
 * Without one the model is a base model: it continues text and does not answer.
 */
has_chat_template: boolean, 
/**
 * Why it cannot be run, when that is plain from its files.
 */
problem: string | null, };

export type ModelInfo = { name: string, folder: string, 
/**
 * The architecture that runs it (`llama`, ...).
 */
architecture: string, 
/**
 * Weights, counted before packing.
 */
parameters: number, 
/**
 * Size of the weight files.
 */
bytes: number, 
/**
 * `None`: not quantized.
 */
quantization: Quantization | null, 
/**
 * The type of the weights that are not packed (`bf16`, ...).
 */
weights_dtype: string, context_length: number | null, hidden: number, layers: number, heads: number, kv_heads: number, head_dim: number, vocab: number, 
/**
 * The output projection is the embedding.
 */
tied_embeddings: boolean, 
/**
 * Without one the model is a base model: it continues text and does not answer.
 */
has_chat_template: boolean, stop_ids: Array<number>, 
/**
 * Of all layers, at two bytes an element.
 */
kv_bytes_per_token: number, };

export type ModelSettings = { 
/**
 * Another folder with models, beside rMLX's own and the Hugging Face cache.
 */
folder: string | null, 
/**
 * Bytes a second that downloads take at most; `None`: what the line gives.
 */
rate_limit: number | null, };

export type ModelSource = "own" | "hugging_face" | "folder";

export type Pull = { repo: string, revision: string, 
/**
 * `None` until the hub has said it.
 */
commit: string | null, phase: PullPhase, 
/**
 * Bytes on this disk, of `total`.
 */
done: number, 
/**
 * `None` until the hub has said it.
 */
total: number | null, 
/**
 * Of `done`, what has been hashed and is right.
 */
verified: number, 
/**
 * Bytes a second over the last seconds; 0 while nothing comes.
 */
rate: number, seconds_left: number | null, 
/**
 * Why it waits or failed.
 */
error: ErrorInfo | null, 
/**
 * Another rMLX process fetches it: this is what its files show.
 */
elsewhere: boolean, };

export type PullFile = { name: string, bytes: number, 
/**
 * Bytes of it that are here already.
 */
have: number, };

export type PullOptions = { 
/**
 * Also where [`PullPlan::problems`] say that it would not run here; never past a full disk or a closed gate.
 */
anyway: boolean, };

export type PullPhase = "queued" | "listing" | "fetching" | "waiting" | "verifying" | "paused" | "done" | "failed";

export type PullPlan = { 
/**
 * `ORG/NAME`
 */
repo: string, 
/**
 * What was asked for: a branch, a tag, a commit.
 */
revision: string, 
/**
 * What that is now.
 */
commit: string, 
/**
 * `architectures[0]` of its configuration.
 */
architecture: string | null, 
/**
 * Such as `affine 4-bit, group 64`; `None`: not quantized.
 */
quantization: string | null, 
/**
 * Without a chat template it is a base model. `None`: not known before the template's file is there.
 */
has_chat_template: boolean | null, 
/**
 * As the hub calls it (`apache-2.0`); `None`: it says none.
 */
license: string | null, 
/**
 * Its publisher wants terms to be accepted on the hub's site first.
 */
gated: boolean, files: Array<PullFile>, 
/**
 * Of all files.
 */
bytes: number, 
/**
 * What is not here yet.
 */
to_fetch: number, disk: DiskRoom, 
/**
 * `None` where the configuration says too little.
 */
memory: MemoryNeed | null, 
/**
 * Why it cannot be fetched or would not run; empty: go.
 */
problems: Array<ErrorInfo>, 
/**
 * What the user should know and may accept (a base model, no licence, little memory).
 */
notes: Array<string>, };

export type Quantization = { 
/**
 * `affine`.
 */
mode: string, bits: number, group_size: number, 
/**
 * Some modules have another width.
 */
mixed: boolean, };

export type Role = "user" | "assistant";

export type Settings = { 
/**
 * The model of a new conversation.
 */
model: string | null, theme: Theme, 
/**
 * Shows and hides the window, from any application; empty: none. `CmdOrCtrl+Shift+Space`, for example.
 */
shortcut: string, chat: ChatSettings, endpoint: EndpointSettings, models: ModelSettings, };

export type Status = { 
/**
 * `cpu` or `gpu`: what `auto` came to.
 */
device: string, 
/**
 * Of the resident model; `None` while there is none.
 */
dtype: string | null, 
/**
 * Of the library that is loaded.
 */
mlx_version: string, 
/**
 * MLX's arrays, and the keys and values that are not MLX's.
 */
active_bytes: number, 
/**
 * The most of either, which need not have been at one time.
 */
peak_bytes: number, 
/**
 * What MLX keeps for later.
 */
cache_bytes: number, resident: Array<string>, };

export type Task = "chat" | "vision" | "speech" | "embedding";

export type Theme = "system" | "light" | "dark";

export type Thread = { conversation: ConversationEntry, messages: Array<ThreadMessage>, 
/**
 * The last message is an answer that is being made in this process: `follow` gives its events.
 */
running: boolean, };

export type ThreadMessage = { id: number, role: Role, content: string, created_ms: number, 
/**
 * The ids of all versions of this message (edited questions, retried answers) in the order of their making; its own among
 * them. Most messages have one.
 */
versions: Array<number>, 
/**
 * Of an assistant's message.
 */
answer: AnswerInfo | null, };

export type Timings = { 
/**
 * Waiting for the model and for other sequences before the first chunk.
 */
queued_ms: number, prefill_ms: number, 
/**
 * Until the first token was read.
 */
first_token_ms: number, total_ms: number, 
/**
 * Prompt tokens over prefill time.
 */
prefill_tokens_per_second: number, 
/**
 * Tokens after the first over the time between the first and the last.
 */
decode_tokens_per_second: number, };

export type TokenKept = "none" | "keyring" | "session" | "environment" | "file";

export type TokenLogprob = { id: number, logprob: number, 
/**
 * The most probable tokens, best first.
 */
top: Array<[number, number]>, };

export type TokenState = { kept: TokenKept, 
/**
 * What the user should know: there is no secure store, say.
 */
note: string | null, };

export type Turn = { 
/**
 * `None` begins a new one (with [`Ask::New`]).
 */
conversation: number | null, model: string, ask: Ask, };

export type Usage = { prompt_tokens: number, completion_tokens: number, };
