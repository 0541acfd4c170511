import { describe, expect, it, vi } from "vitest";
import { splitHint } from "../failure";
import { strings } from "../strings";
import { CompositionGuard } from "./composition";
import { daysAgo } from "./format";
import { OncePerFrame } from "./frames";
import { Sentences, splitSentences } from "./sentences";
import { snippetParts } from "./snippet";

describe("splitSentences", () => {
  it.each([
    ["One. Two! Three? Fo", ["One.", "Two!", "Three?"], "Fo"],
    ["He said “No.” Then", ["He said “No.”"], "Then"],
    ["日本語です。次の文", ["日本語です。"], "次の文"],
    ["1. First thing. Next", ["1. First thing."], "Next"],
    ["Dr. Smith came. He", ["Dr. Smith came."], "He"],
    ["3.14 is pi", [], "3.14 is pi"],
    ["a\nb", ["a"], "b"],
    ["", [], ""],
  ])("of %j", (text, whole, rest) => {
    expect(splitSentences(text)).toEqual({ whole, rest });
  });
});

describe("Sentences", () => {
  const words = { code: (language: string, lines: number) => `[${language} ${String(lines)}]` };

  it("gives each whole sentence once, however the text arrives", () => {
    const text = "First *one*. Second one.\n\nA list:\n\n- a\n- b\n\n```js\nlet a;\nlet b;\n```\n\nThe end";
    for (const step of [1, 3, 7, 1000]) {
      const sentences = new Sentences(words);
      const said: string[] = [];
      for (let n = step; n < text.length + step; n += step) said.push(...sentences.next(text.slice(0, n), false));
      said.push(...sentences.next(text, true));
      expect(said).toEqual(["First one.", "Second one.", "A list:", "a", "b", "[js 2]", "The end"]);
    }
  });

  it("reads again only what may still change", () => {
    let read = 0;
    const sentences = new Sentences({ code: () => `code ${String(++read)}` });
    const said: string[] = [];
    let text = "";
    for (let n = 0; n < 50; n++) {
      text += `\`\`\`\n${String(n)}\n\`\`\`\nWords ${String(n)}.\n\n`;
      said.push(...sentences.next(text, false));
    }
    said.push(...sentences.next(text, true));
    expect(said.filter((one) => one.startsWith("Words"))).toHaveLength(50);
    expect(said).toHaveLength(100);
    expect(read).toBeLessThan(150);
  });

  it("never says half a sentence before the end", () => {
    const sentences = new Sentences(words);
    expect(sentences.next("Half a sen", false)).toEqual([]);
    expect(sentences.next("Half a sentence. An", false)).toEqual(["Half a sentence."]);
    expect(sentences.next("Half a sentence. And more", true)).toEqual(["And more"]);
  });
});

describe("CompositionGuard", () => {
  const enter = (timeStamp: number, more = {}) => ({ isComposing: false, keyCode: 13, timeStamp, ...more });

  it("owns keys of a composition, by any of three signs", () => {
    const guard = new CompositionGuard();
    expect(guard.owns(enter(0))).toBe(false);
    expect(guard.owns(enter(0, { isComposing: true }))).toBe(true);
    expect(guard.owns(enter(0, { keyCode: 229 }))).toBe(true);
    guard.start();
    expect(guard.owns(enter(10))).toBe(true);
  });

  it("owns the press that ended the composition, and not the next one", () => {
    const guard = new CompositionGuard();
    guard.start();
    guard.end(1000);
    expect(guard.owns(enter(1001))).toBe(true);
    expect(guard.owns(enter(1200))).toBe(false);
  });
});

describe("OncePerFrame", () => {
  it("works once for many calls, and without frames after a while", () => {
    vi.useFakeTimers();
    vi.stubGlobal("requestAnimationFrame", () => 1);
    vi.stubGlobal("cancelAnimationFrame", () => undefined);
    let worked = 0;
    const once = new OncePerFrame(() => worked++);
    for (let n = 0; n < 100; n++) once.ask();
    expect(worked).toBe(0);
    vi.advanceTimersByTime(300);
    expect(worked).toBe(1);
    once.now();
    expect(worked).toBe(1);
    once.ask();
    once.now();
    expect(worked).toBe(2);
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });
});

describe("small things", () => {
  it("splits a snippet at its marks", () => {
    expect(snippetParts("a \u0002b\u0003 c\u0002d\u0003")).toEqual([
      { text: "a ", hit: false },
      { text: "b", hit: true },
      { text: " c", hit: false },
      { text: "d", hit: true },
    ]);
  });

  it("counts days by the calendar", () => {
    const late = new Date(2026, 5, 1, 23, 50).getTime();
    expect(daysAgo(late, new Date(2026, 5, 2, 0, 10).getTime())).toBe(1);
    expect(daysAgo(late, late)).toBe(0);
  });

  it("takes hints out of an engine's message", () => {
    expect(splitHint("it broke: x\nhint: mend it")).toEqual({ text: "it broke: x", hint: "mend it" });
  });

  it("has help for every code of the engine", () => {
    const codes = [
      ...["io", "model_not_found", "bad_file", "unsupported_model", "bad_weights", "context_length_exceeded", "invalid_request"],
      ...["template", "tokenizer", "non_finite", "base_model", "cancelled", "claim_held", "port_taken", "not_found", "store", "mlx", "internal"],
    ];
    for (const code of codes) expect(strings.errorHelp(code), code).not.toBe(strings.unknownError);
    expect(strings.errorHelp("something else")).toBe(strings.unknownError);
  });
});
