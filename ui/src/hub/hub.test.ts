import { describe, expect, it } from "vitest";
import type { CatalogueEntry, Pull, PullPhase } from "../gen/api";
import type { Backend } from "../ipc";
import { fitting, repository, tasksOf } from "../pages/models/filter";
import { bytes, duration, percent, size } from "../shared/format";
import { Downloads, keyOf } from "./downloads.svelte";

const pull = (phase: PullPhase, more: Partial<Pull> = {}): Pull => ({
  repo: "o/n", revision: "main", commit: null, phase, done: 0, total: null, verified: 0,
  rate: 0, seconds_left: null, error: null, elsewhere: false, ...more,
});

/** Downloads over a backend that only tells of them. */
async function listening() {
  const said: string[] = [];
  let tell: (pulls: Pull[] | null) => void = () => undefined;
  const asked: [string, boolean][] = [];
  let stored: Pull[] = [];
  const backend = {
    pulls: () => Promise.resolve(stored),
    pull: (model: string, anyway: boolean) => {
      asked.push([model, anyway]);
      return Promise.resolve(pull("listing"));
    },
    on: (_: string, call: (pulls: Pull[] | null) => void) => {
      tell = call;
      return Promise.resolve(() => undefined);
    },
  } as unknown as Backend;
  const downloads = new Downloads(backend, (text) => said.push(text));
  await downloads.begin();
  const keep = (pulls: Pull[]) => (stored = pulls);
  return { downloads, said, asked, keep, tell: (pulls: Pull[] | null) => { tell(pulls); } };
}

describe("downloads", () => {
  it("tell of each phase once, not of each percent", async () => {
    const { said, tell } = await listening();
    tell([pull("listing")]);
    for (let done = 0; done < 50; done++) tell([pull("fetching", { done, total: 100, rate: 5 })]);
    tell([pull("waiting", { done: 50, total: 100 })]);
    tell([pull("fetching", { done: 51, total: 100, rate: 5 })]);
    tell([pull("verifying", { done: 100, total: 100 })]);
    tell([pull("failed", { error: { code: "disk_full", message: "m" } })]);
    expect(said.filter((text) => text !== "")).toEqual([
      "Downloading o/n.",
      "o/n waits for the network.",
      "The network is back: o/n goes on.",
      "Checking the files of o/n.",
      "The download of o/n failed: The disk is full.",
    ]);
  });

  it("that were there before the page are not told of, nor offered", async () => {
    const { downloads, said, keep } = await listening();
    keep([pull("done")]);
    const other = new Downloads(
      { pulls: () => Promise.resolve([pull("done")]), on: () => Promise.resolve(() => undefined) } as unknown as Backend,
      (text) => said.push(text),
    );
    await other.begin();
    expect([said, other.ready, downloads.ready]).toEqual([[], [], []]);
  });

  it("offer what became ready until the user has answered", async () => {
    const { downloads, tell } = await listening();
    tell([pull("verifying")]);
    tell([pull("done")]);
    tell([pull("done")]);
    expect(downloads.ready.map(keyOf)).toEqual(["o/n"]);
    downloads.hide(pull("done"));
    expect([downloads.ready, downloads.shown]).toEqual([[], []]);
    // Fetched again, it is shown again.
    tell([pull("fetching")]);
    tell([pull("done")]);
    expect(downloads.shown.length).toBe(1);
  });

  it("wait until a byte has come", async () => {
    const { downloads, tell, said } = await listening();
    tell([pull("fetching", { rate: 9 })]);
    const error = { code: "hub_offline", message: "no connection" };
    tell([pull("waiting", { error })]);
    const before = said.length;
    tell([pull("listing")]);
    tell([pull("fetching", { rate: 0 })]);
    tell([pull("waiting", { error })]);
    expect([said.length, downloads.all[0]?.phase]).toEqual([before, "waiting"]);
    tell([pull("fetching", { rate: 0 })]);
    expect([downloads.all[0]?.phase, downloads.all[0]?.error]).toEqual(["waiting", error]);
    tell([pull("fetching", { rate: 9 })]);
    expect([said.length, said.at(-1)]).toEqual([before + 1, "The network is back: o/n goes on."]);
    // What is paused or ended meanwhile does not wait.
    tell([pull("waiting", { error })]);
    tell([pull("paused")]);
    expect(downloads.all[0]?.phase).toBe("paused");
    // A lull without a word of the network stays a lull.
    tell([pull("fetching", { rate: 9 })]);
    tell([pull("fetching", { rate: 0 })]);
    expect(downloads.all[0]?.phase).toBe("fetching");
  });

  it("estimate from a measured rate only", async () => {
    const { downloads, tell } = await listening();
    expect(downloads.estimate(100)).toBe(null);
    tell([pull("fetching", { rate: 0 })]);
    expect(downloads.estimate(100)).toBe(null);
    tell([pull("fetching", { rate: 25 })]);
    tell([pull("fetching", { rate: 0 })]);
    expect(downloads.estimate(100)).toBe(4);
  });

  it("count percent of those whose size is known", async () => {
    const { downloads, tell } = await listening();
    expect(downloads.percent).toBe(null);
    tell([pull("listing"), pull("paused", { repo: "p/p", done: 1, total: 100 })]);
    expect(downloads.percent).toBe(null);
    tell([pull("listing"), pull("fetching", { repo: "a/b", done: 30, total: 100 }), pull("fetching", { repo: "c/d", done: 99, total: 100 })]);
    expect(downloads.percent).toBe(64);
  });

  it("are read where a message has no room for them", async () => {
    const { downloads, keep, tell } = await listening();
    keep([pull("paused")]);
    tell(null);
    await Promise.resolve();
    await Promise.resolve();
    expect(downloads.all.length).toBe(1);
  });

  it("go on by the name that they were begun with", async () => {
    const { downloads, asked } = await listening();
    await downloads.resume(pull("paused", { revision: "v2", done: 5 }));
    await downloads.resume(pull("failed"));
    // Whether it was begun in spite of a problem is not the page's to guess.
    expect(asked).toEqual([["o/n@v2", false], ["o/n", false]]);
  });
});

describe("figures", () => {
  it("never say what is not known", () => {
    expect(percent(5, null)).toBe(null);
    expect(percent(0, 0)).toBe(null);
    expect(percent(999, 1000)).toBe(99);
    expect(percent(1000, 1000)).toBe(100);
    expect(percent(1001, 1000)).toBe(100);
    for (const seconds of [Number.NaN, Infinity, 0, 1, 59, 60, 5999, 1e5, 1e9]) expect(duration(seconds)).not.toMatch(/NaN|Infinity/);
  });

  it.each([
    [0, "0 kB"], [1, "1 kB"], [999_499, "1,000 kB"], [999_500, "1 MB"], [1_640_000, "1.6 MB"], [9_949_999, "9.9 MB"], [9_950_000, "10 MB"], [999_499_999, "999 MB"], [999_500_000, "1 GB"], [4_610_000_000, "4.6 GB"],
  ])("%d bytes", (n, text) => {
    expect(bytes(n)).toBe(text);
  });

  it("say the unit once", () => {
    expect(size(1_200_000_000, 4_600_000_000)).toBe("1.2 of 4.6 GB");
    expect(size(8_000_000, 2_300_000_000)).toBe("8 MB of 2.3 GB");
    expect(size(8_000_000, null)).toBe("8 MB");
  });

  it.each([[1, "less than a minute"], [60, "about 1 minute"], [150, "about 3 minutes"], [7300, "about 2 hours"]])("%d seconds", (n, text) => {
    expect(duration(n)).toBe(text);
  });
});

describe("suggestions", () => {
  const entry = (repo: string, memory_gb: number, more: Partial<CatalogueEntry> = {}): CatalogueEntry => ({
    repo, title: repo, task: "chat", memory_gb, why: "", commit: null, bytes: null, license: null,
    verified: false, recommended: false, here: false, ...more,
  });
  const all = [entry("a", 64), entry("b", 16), entry("c", 16, { recommended: true }), entry("d", 8, { task: "vision" })];

  it("are filtered by task and by memory, the recommended first", () => {
    const names = (list: CatalogueEntry[]) => list.map((e) => e.repo).join("");
    expect(names(fitting(all, null, null))).toBe("cabd");
    // 16 GiB is a little more than 16 GB.
    expect(names(fitting(all, null, 17_179_869_184))).toBe("cbd");
    expect(names(fitting([entry("x", 4), entry("y", 16), entry("z", 8)], null, 17e9))).toBe("yzx");
    expect(names(fitting(all, "vision", null))).toBe("d");
    expect(names(fitting(all, "speech", null))).toBe("");
    expect(tasksOf(all)).toEqual(["chat", "vision"]);
  });

  it.each([
    ["org/name", "org/name"],
    ["  org/Name-1.5_b@v2 ", "org/Name-1.5_b@v2"],
    ["org/name@main", "org/name"],
    ["org/name@refs/pr/1", "org/name@refs/pr/1"],
    ["https://huggingface.co/org/name", "org/name"],
    ["https://huggingface.co/org/name/", "org/name"],
    ["https://hf.co/org/name/tree/dev", "org/name@dev"],
    ["https://huggingface.co/org/name/tree/main", "org/name"],
    ["name", null],
    ["two words", null],
    ["org/name extra", null],
    ["a/b/c", null],
    ["https://example.org/org/name", null],
    ["../../etc", null],
    ["", null],
  ])("%j names %j", (text, name) => {
    expect(repository(text)).toBe(name);
  });
});
