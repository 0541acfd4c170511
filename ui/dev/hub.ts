/**
 * The stub's hub: invented repositories, and downloads that take their time, stop and fail. `dev.html?...` takes `rate` (bytes a
 * second), `pulls` (a list of what is under way: fetching, queued, listing, waiting, verifying, paused, done, full, bad, gated,
 * elsewhere) and `catalogue=none`.
 */
import type {
  CatalogueEntry,
  ErrorInfo,
  FileCheck,
  HubModel,
  ModelEntry,
  Pull,
  PullPhase,
  PullPlan,
  TokenState,
} from "../src/gen/api";
import type { Progress } from "../src/ipc";

const TICK_MS = 60;
const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));
const fail = (code: string, message: string): ErrorInfo => ({ code, message });

interface Repo {
  bytes: number;
  quantization: string | null;
  license: string | null;
  gated?: boolean;
  base?: boolean;
  problem?: ErrorInfo;
  tight?: boolean;
}

const LONG = "example-organisation-with-a-long-name/A-Model-With-A-Very-Long-Name-That-Does-Not-Break-Anywhere-Instruct-4bit-2026-11";

const REPOS: Record<string, Repo> = {
  "example/Atlas-4B-4bit": { bytes: 2_310_000_000, quantization: "affine 4-bit, group 64", license: "apache-2.0" },
  "example/Atlas-8B-4bit": { bytes: 4_610_000_000, quantization: "affine 4-bit, group 64", license: "apache-2.0" },
  "example/Atlas-32B-4bit": { bytes: 18_400_000_000, quantization: "affine 4-bit, group 64", license: "apache-2.0", tight: true },
  "example/Harbour-8B": { bytes: 16_100_000_000, quantization: null, license: "harbour-community", gated: true },
  "example/Atlas-1B-base": { bytes: 2_470_000_000, quantization: null, license: null, base: true },
  "example/Colossus-400B": { bytes: 803_000_000_000, quantization: null, license: "mit" },
  "example/Octopus-8x7B": {
    bytes: 26_000_000_000,
    quantization: "affine 4-bit, group 64",
    license: "apache-2.0",
    problem: fail("unsupported_model", "this model cannot be run: no architecture here is called OctopusForCausalLM"),
  },
  [LONG]: { bytes: 2_900_000_000, quantization: "affine 4-bit, group 64", license: "apache-2.0" },
};

export class StubHub {
  /** As if the network went away. */
  offline = false;
  /** Bytes a second. */
  rate: number;
  /** What fails with it, by repository, once this many bytes are here. */
  trouble: Record<string, { at: number; error: ErrorInfo }> = {};
  state: TokenState = { kept: "none", note: null };
  /** No secure store on this machine. */
  storeless = false;
  pulls: Pull[] = [];
  /** Milliseconds that an answer of the hub takes. */
  delay = 60;
  verifyMs = 1200;
  /** What `verify` finds wrong. */
  wrong: string[] = [];
  private secret: string | null = null;
  private timers = new Map<string, ReturnType<typeof setInterval>>();
  private verifying: { stopped: boolean } | null = null;
  private readonly bare: boolean;

  constructor(
    query: URLSearchParams,
    private readonly installed: ModelEntry[],
    private readonly changed: (pulls: Pull[]) => void,
  ) {
    this.rate = Number(query.get("rate") ?? 23_000_000);
    this.bare = query.get("catalogue") === "none";
    for (const kind of query.get("pulls")?.split(",") ?? []) this.seed(kind);
  }

  private here(repo: string): boolean {
    return this.installed.some((m) => m.name === repo && m.problem === null);
  }

  private async reach(): Promise<void> {
    await sleep(this.delay);

    if (this.offline) throw fail("hub_offline", "https://huggingface.co: no connection\nhint: check the network, or HF_ENDPOINT and the proxy");
  }

  private find(model: string): { name: string; revision: string; repo: Repo } {
    const [name = "", revision = "main"] = model.split("@");

    if (!/^[\w.-]+\/[\w.-]+$/.test(name)) throw fail("invalid_request", `not a repository: ${name}\nhint: ORG/NAME, or ORG/NAME@REVISION`);
    const repo = REPOS[name];

    if (!repo) throw fail("hub_not_found", `${name}: the hub has no such model, or it is private`);

    if (repo.gated && (this.secret === null || this.secret === "hf_stranger")) throw fail("hub_gated", `${name}: its publisher wants terms to be accepted\nhint: accept them at https://huggingface.co/${name} and give rMLX a token`);

    if (repo.gated && this.secret !== "hf_good") throw fail("hub_token", "the hub does not know this token");
    return { name, revision, repo };
  }

  async plan(model: string): Promise<PullPlan> {
    await this.reach();
    const { name, revision, repo } = this.find(model);
    const free = 212_000_000_000;
    const reserve = 10_000_000_000;
    const have = this.pulls.find((p) => p.repo === name)?.done ?? 0;
    const to_fetch = this.here(name) ? 0 : repo.bytes - have;
    const weights = repo.bytes - 12_000_000;
    const headroom = 13_400_000_000;
    const memory = { weights, kv: 604_000_000, context: 8192, workspace: 320_000_000, headroom, fits: weights + 924_000_000 <= headroom };
    const disk = { free, reserve, fits: to_fetch + reserve <= free };
    const problems: ErrorInfo[] = repo.problem ? [repo.problem] : [];
    const notes: string[] = [];
    if (repo.base) notes.push("a base model: it continues text and does not answer questions");
    if (repo.license === null) notes.push("its publisher names no licence");
    if (!memory.fits) notes.push("it needs more memory than this machine can give now");
    return {
      repo: name, revision, commit: COMMIT,
      architecture: repo.problem ? "OctopusForCausalLM" : "LlamaForCausalLM",
      quantization: repo.quantization,
      has_chat_template: !repo.base,
      license: repo.license,
      gated: repo.gated ?? false,
      files: [
        { name: "config.json", bytes: 1_200, have: 0 },
        { name: "model.safetensors", bytes: weights, have },
        { name: "tokenizer.json", bytes: 11_998_800, have: 0 },
      ],
      bytes: repo.bytes, to_fetch, disk, memory, problems, notes,
    };
  }

  private fresh(name: string, revision: string, more: Partial<Pull> = {}): Pull {
    return {
      repo: name, revision, commit: null, phase: "listing", done: 0, total: null, verified: 0,
      rate: 0, seconds_left: null, error: null, elsewhere: false, ...more,
    };
  }

  private seed(kind: string): void {
    const total = 4_610_000_000;
    const done = 1_980_000_000;
    const some = { commit: COMMIT, total, done };
    const add = (repo: string, phase: PullPhase, more: Partial<Pull> = {}) => this.pulls.push(this.fresh(repo, "main", { ...some, phase, ...more }));
    if (kind === "fetching") {
      add("example/Atlas-8B-4bit", "fetching", { rate: this.rate, seconds_left: Math.round((total - done) / this.rate) });
      this.run("example/Atlas-8B-4bit");
    }
    if (kind === "queued") add("example/Queued-4B", "queued", { commit: null, total: null, done: 0 });
    if (kind === "listing") add("example/Listing-4B", "listing", { commit: null, total: null, done: 0 });
    if (kind === "waiting") add("example/Waiting-8B", "waiting", { error: fail("hub_offline", "https://huggingface.co: no connection") });
    if (kind === "verifying") add("example/Checking-8B", "verifying", { done: total, verified: 2_100_000_000 });
    if (kind === "paused") add(LONG, "paused", { total: 2_900_000_000 });
    if (kind === "done") add("example/Atlas-4B-4bit", "done", { done: 2_310_000_000, total: 2_310_000_000, verified: 2_310_000_000 });
    if (kind === "full") add("example/Full-8B", "failed", { error: fail("disk_full", "/home/me/.cache/huggingface: 2630000000 bytes are needed and 41000000 are free\nhint: free some space and go on; what is here stays") });
    if (kind === "bad") add("example/Bad-8B", "failed", { error: fail("bad_download", "model-00001-of-00002.safetensors: its hash was wrong 3 times") });
    if (kind === "gated") add("example/Harbour-8B", "failed", { done: 0, total: null, error: fail("hub_gated", "example/Harbour-8B: its publisher wants terms to be accepted") });
    if (kind === "elsewhere") add("example/Elsewhere-8B", "fetching", { elsewhere: true });
  }

  // ---- downloads ----

  tell(): void {
    this.changed(structuredClone(this.pulls));
  }

  private set(name: string, change: Partial<Pull>): Pull | undefined {
    this.pulls = this.pulls.map((p) => (p.repo === name ? { ...p, ...change } : p));
    this.tell();
    return this.pulls.find((p) => p.repo === name);
  }

  async pull(model: string, anyway: boolean): Promise<Pull> {
    const [name = "", revision = "main"] = model.split("@");
    const known = this.pulls.find((p) => p.repo === name);
    if (known && this.timers.has(name)) return known;
    if (!known) this.pulls = [...this.pulls, this.fresh(name, revision)];
    const begun = this.set(name, { phase: "listing", error: null, rate: 0, seconds_left: null });
    void this.begin(model, name, anyway);
    return begun ?? this.fresh(name, revision);
  }

  private async begin(model: string, name: string, anyway: boolean): Promise<void> {
    try {
      const plan = await this.plan(model);
      // Paused or cancelled meanwhile.
      if (this.pulls.find((p) => p.repo === name)?.phase !== "listing") return;
      const full = fail("disk_full", `/home/me/.cache/huggingface: ${String(plan.to_fetch)} bytes are needed and ${String(plan.disk.free)} are free`);
      const stopping = plan.disk.fits ? plan.problems.find(() => !anyway) : full;
      if (stopping) this.set(name, { phase: "failed", error: stopping });
      else {
        this.set(name, { phase: "fetching", total: plan.bytes, commit: plan.commit });
        this.run(name);
      }
    } catch (e) {
      this.set(name, { phase: "failed", error: e as ErrorInfo });
    }
  }

  private end(name: string): void {
    clearInterval(this.timers.get(name));
    this.timers.delete(name);
  }

  private run(name: string): void {
    this.end(name);
    this.timers.set(name, setInterval(() => { this.step(name); }, TICK_MS));
  }

  private step(name: string): void {
    const now = this.pulls.find((p) => p.repo === name);
    if (!now || now.total === null) return;
    const step = (this.rate * TICK_MS) / 1000;
    const trouble = this.trouble[name];
    if (this.offline) {
      if (now.phase !== "waiting") this.set(name, { phase: "waiting", rate: 0, seconds_left: null, error: fail("hub_offline", "https://huggingface.co: no connection") });
    } else if (now.phase === "verifying") {
      const verified = Math.min(now.total, now.verified + step * 4);
      this.set(name, { verified });
      if (verified >= now.total) this.finish(name, now.total);
    } else if (trouble && now.done >= trouble.at) {
      this.end(name);
      this.set(name, { phase: "failed", rate: 0, seconds_left: null, error: trouble.error });
    } else {
      const done = Math.min(now.total, now.done + step);
      const left = now.total - done;
      const phase: PullPhase = left > 0 ? "fetching" : "verifying";
      this.set(name, { phase, done, error: null, rate: left > 0 ? this.rate : 0, seconds_left: left > 0 ? Math.round(left / this.rate) : null });
    }
  }

  private finish(name: string, bytes: number): void {
    this.end(name);
    if (!this.here(name)) {
      this.installed.push({
        name, folder: `/cache/${name}`, bytes, architecture: "LlamaForCausalLM", quantization: REPOS[name]?.quantization ?? null,
        source: "hugging_face", has_chat_template: !REPOS[name]?.base, problem: null,
      });
    }
    this.set(name, { phase: "done", rate: 0, seconds_left: null });
  }

  async pause(model: string): Promise<void> {
    const [name = ""] = model.split("@");
    this.end(name);
    this.set(name, { phase: "paused", rate: 0, seconds_left: null, error: null });
  }

  async cancel(model: string): Promise<void> {
    const [name = ""] = model.split("@");
    this.end(name);
    this.pulls = this.pulls.filter((p) => p.repo !== name);
    this.tell();
  }

  // ---- what is here ----

  async verify(model: string, on: (progress: Progress) => void): Promise<FileCheck[]> {
    const run = { stopped: false };
    this.verifying = run;
    const total = this.installed.find((m) => m.name === model)?.bytes ?? 0;
    for (let step = 0; step <= 20; step++) {

      if (run.stopped) throw fail("cancelled", "cancelled");
      on({ done: Math.round((total * step) / 20), total });
      await sleep(this.verifyMs / 20);
    }
    const files: [string, number][] = [["config.json", 1_200], ["model.safetensors", total - 12_000_000], ["tokenizer.json", 11_998_800]];
    return files.map(([name, bytes]) => ({ name, bytes, state: this.wrong.includes(name) ? "wrong" : "right" }));
  }

  stopVerify(): void {
    if (this.verifying) this.verifying.stopped = true;
  }

  remove(model: string): number {
    const at = this.installed.findIndex((m) => m.name === model);

    if (at < 0) throw fail("model_not_found", `no model is called ${model}`);
    this.pulls = this.pulls.filter((p) => p.repo !== model);
    this.tell();
    return this.installed.splice(at, 1)[0]?.bytes ?? 0;
  }

  // ---- what there is ----

  catalogue(): CatalogueEntry[] {
    if (this.bare) return [];
    const entry = (repo: string, title: string, memory_gb: number, why: string, more: Partial<CatalogueEntry> = {}): CatalogueEntry => ({
      repo, title, task: "chat", memory_gb, why, commit: null, bytes: null, license: null,
      verified: false, recommended: false, here: this.here(repo), ...more,
    });
    const known = { commit: COMMIT, bytes: REPOS["example/Atlas-4B-4bit"]?.bytes ?? null, license: "apache-2.0" };
    return [
      entry("example/Atlas-4B-4bit", "Atlas 4B", 16, "Good answers in many languages, and small enough to stay loaded.", { ...known, recommended: true }),
      entry("example/Atlas-8B-4bit", "Atlas 8B", 24, "Better at reasoning and code; slower."),
      entry("example/Atlas-32B-4bit", "Atlas 32B", 48, "The best answers that a large machine can give."),
      entry("example/Lens-3B-4bit", "Lens 3B", 16, "Describes pictures and reads text in them.", { task: "vision", recommended: true }),
    ];
  }

  async search(words: string): Promise<HubModel[]> {
    await this.reach();
    const wanted = words.toLowerCase().split(/\s+/);
    const fits = (name: string) => wanted.every((word) => name.toLowerCase().includes(word));
    return Object.entries(REPOS).filter(([name]) => fits(name)).map(([repo, about]) => ({
      repo, downloads: about.bytes % 900_001, likes: about.bytes % 977, task: "text-generation",
      license: about.license, gated: about.gated ?? false, updated: "2026-09-14T08:00:00.000Z",
      problem: about.problem ? "no architecture here is called OctopusForCausalLM" : null, here: this.here(repo),
    }));
  }

  setToken(token: string | null): TokenState {
    this.secret = token;
    if (token === null) this.state = { kept: "none", note: null };
    else if (this.storeless) this.state = { kept: "session", note: "kept until this program ends, and not in a secure store: there is no session bus" };
    else this.state = { kept: "keyring", note: null };
    return this.state;
  }
}
