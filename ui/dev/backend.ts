/**
 * The page's backend without an engine: scripted models, conversations and answers, for a browser. `dev.html?...` takes
 * `speed` (tokens a second), `models=none|demo|many`, `thread=N` (messages of one long conversation), `load` and `prefill` (milliseconds),
 * `platform=macos|linux`, `theme`, `shortcut=taken`, `fresh` (forget what was open), and what `hub.ts` says.
 */
import type { Failure } from "../src/failure";
import type {
  Activity,
  AnswerInfo,
  CatalogueEntry,
  ConversationEntry,
  EndpointState,
  Event,
  FileCheck,
  Finished,
  HubModel,
  ModelEntry,
  Pull,
  PullPlan,
  Role,
  Settings,
  Theme,
  Thread,
  ThreadMessage,
  TokenState,
  Turn,
} from "../src/gen/api";
import type { AppInfo, Backend, Changes, DeepPartial, Progress } from "../src/ipc";
import { StubHub } from "./hub";
import { answerTo } from "./samples";

interface Node {
  id: number;
  parent: number | null;
  role: Role;
  content: string;
  created_ms: number;
  answer: AnswerInfo | null;
}

interface Conversation {
  entry: ConversationEntry;
  nodes: Map<number, Node>;
  /** The chosen child of each parent (0: of none). */
  chosen: Map<number, number>;
  deleted: boolean;
}

interface Running {
  stopped: boolean;
  text: string;
  /** Where it is before there is text. */
  progress: Event | null;
  listeners: Set<(events: Event[]) => void>;
  ended: Promise<void>;
}

const DAY = 86_400_000;
const DEMO = "SmolLM2-135M-Instruct";
const STATE_KEY = "stub-page-state";
const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));
const fail = (code: string, message: string): Failure => ({ code, message });

export class Stub implements Backend {
  /** Tests put a failure here by the method's name; it is thrown until it is taken away. */
  failures: Partial<Record<keyof Backend, Failure>> = {};
  /** An answer of this text's length fails with it. */
  failAnswer: { after: number; error: Failure } | null = null;
  /** Every next answer; `null`: one that fits the question. */
  answer: string | null = null;
  opened: string[] = [];
  calls: string[] = [];
  speed: number;
  loadMs: number;
  private loading: { stopped: boolean } | null = null;
  prefillMs: number;

  private readonly all = new Map<number, Conversation>();
  private readonly running = new Map<number, Running>();
  private readonly handlers = new Map<keyof Changes, Set<(value: never) => void>>();
  private nextId = 1;
  private resident: string | null = null;
  private state: EndpointState = { state: "off" };
  private kept: Settings;
  private readonly installed: ModelEntry[];
  readonly hub: StubHub;
  takenPort: number | null = null;

  constructor(private readonly query: URLSearchParams) {
    const number = (name: string, otherwise: number) => Number(query.get(name) ?? otherwise);
    this.speed = number("speed", 60);
    this.loadMs = number("load", 120);
    this.prefillMs = number("prefill", 60);
    this.kept = {
      model: "SmolLM2-135M-Instruct",
      theme: (query.get("theme") ?? "system") as Theme,
      shortcut: "CmdOrCtrl+Shift+Space",
      chat: { system: "", temperature: null, max_tokens: null },
      endpoint: { enabled: false, port: 8080 },
      models: { folder: null, rate_limit: null },
    };
    this.installed = models(query.get("models"));
    this.hub = new StubHub(query, this.installed, (pulls) => { this.tell("pulls", pulls); });
    this.seed();
    const long = number("thread", 0);
    if (long > 0) this.seedLong(long);
  }

  private call(name: keyof Backend): void {
    this.calls.push(name);
    const failure = this.failures[name];
     
    if (failure) throw failure;
  }

  /** As if another program removed it. */
  forget(model: string): void {
    this.installed.splice(this.installed.findIndex((m) => m.name === model), 1);
  }

  /** As if a model was installed meanwhile. */
  installAll(): void {
    this.installed.push(...models(null));
  }

  // ---- data ----

  private add(title: string, daysAgo: number): Conversation {
    const at = Date.now() - daysAgo * DAY;
    const id = this.nextId++;
    const made: Conversation = {
      entry: { id, title, model: null, created_ms: at, updated_ms: at, found: null },
      nodes: new Map(),
      chosen: new Map(),
      deleted: false,
    };
    this.all.set(id, made);
    return made;
  }

  private node(of: Conversation, parent: number | null, role: Role, content: string, answer: AnswerInfo | null): Node {
    const made = { id: this.nextId++, parent, role, content, created_ms: of.entry.updated_ms, answer };
    of.nodes.set(made.id, made);
    of.chosen.set(parent ?? 0, made.id);
    return made;
  }

  private exchange(of: Conversation, question: string, answer: string, more: Partial<AnswerInfo> = {}): Node {
    const asked = this.node(of, this.path(of).at(-1)?.id ?? null, "user", question, null);
    const model = more.model ?? "SmolLM2-135M-Instruct";
    of.entry.model = model;
    const info: AnswerInfo = { model, state: "complete", finished: finished(question, answer, 42.3), error: null, ...more };
    return this.node(of, asked.id, "assistant", answer, info);
  }

  private seed(): void {
    const titles: [string, number][] = [
      ["Names for a grey cat", 62], ["Why is the sky blue?", 34], ["Packing list for a week in Norway", 12],
      ["Regular expression for dates", 5], ["Explain ownership in Rust", 3], ["Letter to the landlord", 1],
    ];
    for (const [title, days] of titles) {
      this.exchange(this.add(title, days), title, answerTo(title));
    }
    const states = this.add("Answers that ended early", 0.02);
    this.exchange(states, "Tell me a long story.", "Once upon a time there was a", { state: "stopped", finished: null });
    this.exchange(states, "And another one?", "The second story begins in", { state: "unfinished", finished: null });
    const error = { code: "context_length_exceeded", message: "the prompt has 9000 tokens and the context holds 8192\nhint: start a new conversation" };
    this.exchange(states, "Go on, with all of this text.", "", { state: "failed", finished: null, error });
    const newton = this.add("Newton’s method", 0.01);
    this.exchange(newton, "How does Newton’s method work? With code, please.", answerTo("newton"));
  }

  private seedLong(messages: number): void {
    const of = this.add("A long conversation", 0.005);
    for (let n = 0; n < messages / 2; n++) {
      const answer = n % 10 === 3 ? answerTo("newton") : `Answer ${String(n + 1)}. ${"It has some text of its own. ".repeat(1 + (n % 5))}`;
      this.exchange(of, `Question ${String(n + 1)}: what about number ${String(n * 7)}?`, answer);
    }
  }

  private path(of: Conversation): Node[] {
    const nodes: Node[] = [];
    for (let id = of.chosen.get(0); id !== undefined; id = of.chosen.get(id)) {
      const node = of.nodes.get(id);
      if (!node) break;
      nodes.push(node);
    }
    return nodes;
  }

  private find(id: number): Conversation {
    const found = this.all.get(id);
     
    if (!found || found.deleted) throw fail("not_found", `no conversation has the id ${String(id)}`);
    return found;
  }

  private thread(of: Conversation): Thread {
    const siblings = new Map<number, number[]>();
    for (const node of of.nodes.values()) {
      const known = siblings.get(node.parent ?? 0);
      if (known) known.push(node.id);
      else siblings.set(node.parent ?? 0, [node.id]);
    }
    const messages = this.path(of).map(({ parent, ...node }): ThreadMessage => {
      return { ...structuredClone(node), versions: siblings.get(parent ?? 0) ?? [node.id] };
    });
    return { conversation: { ...of.entry }, messages, running: this.running.has(of.entry.id) };
  }

  private changed(of: Conversation): void {
    of.entry.updated_ms = Date.now();
    this.tell("conversations", null);
  }

  tell<K extends keyof Changes>(change: K, value: Changes[K]): void {
    for (const handler of this.handlers.get(change) ?? []) (handler as (value: Changes[K]) => void)(value);
  }

  // ---- Backend ----

  async info(): Promise<AppInfo> {
    this.call("info");
    const problem = this.query.get("shortcut") === "taken" ? "another program has it" : null;
    const platform = this.query.get("platform") ?? "linux";
    return { version: "0.2.0", mlx_version: "0.32.2", platform, tray: platform === "macos", shortcut_problem: problem, demo: DEMO, memory: 17_179_869_184 };
  }

  async activity(): Promise<Activity> {
    this.call("activity");
    const busy = this.running.size > 0;
    return { state: busy ? "busy" : "idle", model: this.resident, loading: null, running: this.running.size, error: null };
  }

  async models(): Promise<ModelEntry[]> {
    this.call("models");
    return structuredClone(this.installed);
  }

  private async loadSteps(model: string, send: (event: Event) => void, stopped: () => boolean): Promise<boolean> {
    if (this.resident === model) return true;
    const total = this.installed.find((m) => m.name === model)?.bytes ?? 1e9;
    send({ type: "loading", stage: "inspect", done: 0, total: 0 });
    await sleep(this.loadMs / 8);
    for (let step = 0; step <= 20; step++) {
      if (stopped()) return false;
      send({ type: "loading", stage: "weights", done: Math.round((total * step) / 20), total });
      await sleep(this.loadMs / 28);
    }
    send({ type: "loading", stage: "warmup", done: 0, total: 0 });
    await sleep(this.loadMs / 8);
    if (stopped()) return false;
    this.resident = model;
    send({ type: "loaded" });
    this.tell("activity", await this.activity());
    return true;
  }

  async load(model: string, on: (events: Event[]) => void): Promise<void> {
    this.call("load");
    const load = { stopped: false };
    this.loading = load;
    const loaded = await this.loadSteps(model, (event) => { on([event]); }, () => load.stopped);
    if (!loaded) throw fail("cancelled", "cancelled");
  }

  async stopLoad(): Promise<void> {
    this.call("stopLoad");
    if (this.loading) this.loading.stopped = true;
  }

  async unload(): Promise<void> {
    this.call("unload");

    if (this.running.size > 0) throw fail("invalid_request", "answers are being made with this model\nhint: stop them, or wait until they are complete");
    this.resident = null;
    this.tell("activity", await this.activity());
  }

  async verify(model: string, on: (progress: Progress) => void): Promise<FileCheck[]> {
    this.call("verify");
    return this.hub.verify(model, on);
  }

  async stopVerify(): Promise<void> {
    this.call("stopVerify");
    this.hub.stopVerify();
  }

  async removeModel(model: string): Promise<number> {
    this.call("removeModel");
    return this.hub.remove(model);
  }

  async catalogue(): Promise<CatalogueEntry[]> {
    this.call("catalogue");
    return this.hub.catalogue();
  }

  async searchHub(words: string): Promise<HubModel[]> {
    this.call("searchHub");
    return this.hub.search(words);
  }

  async plan(model: string): Promise<PullPlan> {
    this.call("plan");
    return this.hub.plan(model);
  }

  async pull(model: string, anyway: boolean): Promise<Pull> {
    this.call("pull");
    return this.hub.pull(model, anyway);
  }

  async pulls(): Promise<Pull[]> {
    this.call("pulls");
    return structuredClone(this.hub.pulls);
  }

  async pausePull(model: string): Promise<void> {
    this.call("pausePull");
    await this.hub.pause(model);
  }

  async cancelPull(model: string): Promise<void> {
    this.call("cancelPull");
    await this.hub.cancel(model);
  }

  async token(): Promise<TokenState> {
    this.call("token");
    return this.hub.state;
  }

  async setToken(token: string | null): Promise<TokenState> {
    this.call("setToken");
    return this.hub.setToken(token);
  }

  async conversations(search?: string): Promise<ConversationEntry[]> {
    this.call("conversations");
    const all = [...this.all.values()].filter((c) => !c.deleted);
    const wanted = search?.trim().toLowerCase() ?? "";
    if (wanted === "") return all.map((c) => ({ ...c.entry })).sort((a, b) => b.updated_ms - a.updated_ms);
    return all.flatMap((c) => {
      const texts: [number | null, string][] = [[null, c.entry.title], ...this.path(c).map((n): [number, string] => [n.id, n.content])];
      for (const [message, text] of texts) {
        const at = text.toLowerCase().indexOf(wanted);
        if (at < 0) continue;
        const end = at + wanted.length;
        const snippet = `${text.slice(Math.max(0, at - 30), at)}\u0002${text.slice(at, end)}\u0003${text.slice(end, end + 60)}`;
        return [{ ...c.entry, found: { message, snippet } }];
      }
      return [];
    });
  }

  async conversation(id: number): Promise<Thread> {
    this.call("conversation");
    return this.thread(this.find(id));
  }

  async rename(id: number, title: string): Promise<void> {
    this.call("rename");
    const of = this.find(id);
    of.entry.title = title;
    this.tell("conversations", null);
  }

  async delete(id: number): Promise<void> {
    this.call("delete");
    this.find(id).deleted = true;
    this.tell("conversations", null);
  }

  async restore(id: number): Promise<void> {
    this.call("restore");
    const of = this.all.get(id);
    if (of) of.deleted = false;
    this.tell("conversations", null);
  }

  async selectVersion(conversation: number, message: number): Promise<Thread> {
    this.call("selectVersion");
    const of = this.find(conversation);
    const node = of.nodes.get(message);
     
    if (!node) throw fail("not_found", `no message has the id ${String(message)}`);
    of.chosen.set(node.parent ?? 0, node.id);
    return this.thread(of);
  }

  async chat({ conversation, model, ask }: Turn): Promise<Thread> {
    this.call("chat");
    await sleep(5);
    const of = conversation === null ? this.add(titleOf(ask.type === "retry" ? "" : ask.text), 0) : this.find(conversation);
    const old = ask.type === "new" ? null : of.nodes.get(ask.message);
    const parent = old ? old.parent : (this.path(of).at(-1)?.id ?? null);
    const asked = ask.type === "retry" ? of.nodes.get(parent ?? 0) : this.node(of, parent, "user", ask.text, null);
    const answer = this.node(of, asked?.id ?? null, "assistant", "", { model, state: "unfinished", finished: null, error: null });
    of.entry.model = model;
    this.start(of, answer, asked?.content ?? "");
    this.changed(of);
    return this.thread(of);
  }

  private start(of: Conversation, answer: Node, question: string): void {
    const run: Running = { stopped: false, text: "", progress: null, listeners: new Set(), ended: Promise.resolve() };
    const { id } = of.entry;
    this.running.set(id, run);
    const send = (event: Event) => {
      run.progress = event;
      for (const listener of run.listeners) listener([event]);
    };
    run.ended = this.write(answer, question, run, send).then(() => {
      this.running.delete(id);
      this.changed(of);
    });
  }

  private async write(answer: Node, question: string, run: Running, send: (event: Event) => void): Promise<void> {
    const info = answer.answer;
    if (!info) return;
    const whole = this.answer ?? answerTo(question);
    const ready = await this.loadSteps(info.model, send, () => run.stopped);
    const prompt = 2048;
    for (let done = 0; ready && !run.stopped && done < prompt; done += 256) {
      send({ type: "prefill", done, total: prompt });
      await sleep(this.prefillMs / 8);
    }
    const words = whole.match(/\s*\S+|\s+$/g) ?? [];
    const began = performance.now();
    let next = 0;
    while (next < words.length && !run.stopped) {
      // At most 30 batches a second, as the shell sends them.
      const due = Math.max(next + 1, Math.floor(((performance.now() - began) / 1000) * this.speed));
      const delta = words.slice(next, due).join("");
      next = due;
      run.text = answer.content = run.text + delta;
      send({ type: "text", delta });
      if (this.failAnswer && run.text.length >= this.failAnswer.after) {
        answer.answer = { ...info, state: "failed", error: this.failAnswer.error };
        send({ type: "failed", ...this.failAnswer.error });
        return;
      }
      await sleep(33);
    }
    if (run.stopped) {
      answer.answer = { ...info, state: "stopped" };
      send({ type: "failed", code: "cancelled", message: "cancelled" });
      return;
    }
    const end = finished(question, whole, this.speed);
    answer.answer = { ...info, state: "complete", finished: end };
    send({ type: "finished", ...end });
  }

  async follow(conversation: number, on: (events: Event[]) => void): Promise<boolean> {
    this.call("follow");
    const run = this.running.get(conversation);
    if (!run) return false;
    on([{ type: "text", delta: run.text }, ...(run.text === "" && run.progress ? [run.progress] : [])]);
    run.listeners.add(on);
    await run.ended;
    return true;
  }

  async stop(conversation: number): Promise<boolean> {
    this.call("stop");
    const run = this.running.get(conversation);
    if (run) run.stopped = true;
    return run !== undefined;
  }

  async settings(): Promise<Settings> {
    this.call("settings");
    return structuredClone(this.kept);
  }

  async setSettings(patch: DeepPartial<Settings>): Promise<Settings> {
    this.call("setSettings");
    const { chat, endpoint, models, ...rest } = patch;
    this.kept = {
      ...this.kept,
      ...rest,
      chat: { ...this.kept.chat, ...chat },
      endpoint: { ...this.kept.endpoint, ...endpoint },
      models: { ...this.kept.models, ...models },
    };
    this.tell("settings", structuredClone(this.kept));
    return structuredClone(this.kept);
  }

  async endpoint(): Promise<EndpointState> {
    this.call("endpoint");
    return this.state;
  }

  async setEndpoint(on: boolean, port?: number): Promise<EndpointState> {
    this.call("setEndpoint");
    this.kept.endpoint = { enabled: on, port: port ?? this.kept.endpoint.port };
    const at = this.kept.endpoint.port;
    if (!on) this.state = { state: "off" };
    else if (at === this.takenPort) {
      const message = `port ${String(at)} is taken by python3 (process 4711)\nhint: use port ${String(at + 1)}`;
      this.state = { state: "failed", error: fail("port_taken", message), next_port: at + 1 };
    } else this.state = { state: "on", url: `http://127.0.0.1:${String(at)}` };
    this.tell("endpoint", this.state);
    return this.state;
  }

  async openLink(url: string): Promise<void> {
    this.call("openLink");
    this.opened.push(url);
  }

  async pageState(): Promise<string> {
    return this.query.has("fresh") ? "" : (sessionStorage.getItem(STATE_KEY) ?? "");
  }

  async setPageState(state: string): Promise<void> {
    sessionStorage.setItem(STATE_KEY, state);
  }

  async on<K extends keyof Changes>(change: K, call: (value: Changes[K]) => void): Promise<() => void> {
    const handlers = this.handlers.get(change) ?? new Set();
    handlers.add(call as (value: never) => void);
    this.handlers.set(change, handlers);
    return () => handlers.delete(call as (value: never) => void);
  }
}

function titleOf(text: string): string {
  return text.length > 48 ? `${text.slice(0, 47)}…` : text;
}

function finished(question: string, answer: string, speed: number): Finished {
  const completion = Math.max(1, Math.round(answer.length / 4));
  return {
    reason: "stop",
    stop: null,
    usage: { prompt_tokens: 12 + Math.round(question.length / 4), completion_tokens: completion },
    timings: {
      queued_ms: 0.4,
      prefill_ms: 84,
      first_token_ms: 96,
      total_ms: 96 + (completion / speed) * 1000,
      prefill_tokens_per_second: 840,
      decode_tokens_per_second: speed,
    },
    kv_bytes: 2_000_000,
  };
}

/** `none`: an empty machine; `demo`: as it is at first; `many`: forty. */
function models(which: string | null): ModelEntry[] {
  const entry = (name: string, bytes: number, more: Partial<ModelEntry> = {}): ModelEntry => ({
    name,
    folder: `/models/${name}`,
    bytes,
    architecture: "LlamaForCausalLM",
    quantization: null,
    source: "own",
    has_chat_template: true,
    problem: null,
    ...more,
  });
  if (which === "none") return [];
  const cached = { source: "hugging_face", quantization: "affine 4-bit, group 64" } as const;
  const demo = entry(DEMO, 270_000_000);
  if (which === "demo") return [demo];
  const long = "example-organisation-with-a-long-name/A-Model-Whose-Name-Is-So-Long-That-It-Does-Not-Fit-Into-Any-Line-";
  const more = which === "many" ? Array.from({ length: 36 }, (_, n) => entry(`${long}${String(n + 1)}`, 1e9 + n * 7e7, cached)) : [];
  return [
    demo,
    entry("Qwen3-8B-4bit", 4_610_000_000, cached),
    entry("Llama-3.2-1B", 2_470_000_000, { source: "hugging_face", has_chat_template: false }),
    entry("Mixtral-8x22B-4bit", 79_100_000_000, {
      ...cached,
      problem: "this model cannot be run: no architecture here is called MixtralForCausalLM",
    }),
    ...more,
  ];
}
