import { describe, expect, it } from "vitest";
import type { ConversationEntry } from "../gen/api";
import { byDay } from "./chat/groups";
import { readKept, writeKept, type Kept } from "./chat/kept";
import { aroundWindow, MOST, shiftDown, shiftUp, tailWindow, trimmed } from "./chat/window";
import { readChord, showChord } from "./settings/chord";

describe("the window of messages", () => {
  it("opens at the end, or around a message", () => {
    expect(tailWindow(2000)).toEqual({ first: 1960, last: null });
    expect(tailWindow(3)).toEqual({ first: 0, last: null });
    expect(aroundWindow(1000, 2000)).toEqual({ first: 980, last: 1020 });
    expect(aroundWindow(1995, 2000)).toEqual({ first: 1975, last: null });
  });

  it("walks through every message and back, and never holds more than it may", () => {
    const all = 2000;
    let bounds = trimmed(tailWindow(all), all);
    const seen = new Set<number>();
    const look = () => {
      expect(bounds.last - bounds.first).toBeLessThanOrEqual(MOST);
      for (let n = bounds.first; n < bounds.last; n++) seen.add(n);
    };
    look();
    while (bounds.first > 0) {
      bounds = trimmed(shiftUp(bounds, all), all);
      look();
    }
    expect(seen.size).toBe(all);
    while (bounds.last < all) {
      bounds = trimmed(shiftDown(bounds, all), all);
      look();
    }
    expect(bounds.last).toBe(all);
  });

  it("grows at the end without moving, up to a bound", () => {
    let view = tailWindow(100);
    for (let all = 100; all < 300; all++) {
      view = tailWindow(all, view);
      const bounds = trimmed(view, all);
      expect(bounds.last).toBe(all);
      expect(bounds.last - bounds.first).toBeLessThanOrEqual(MOST);
    }
  });

  it("stands a thread that became shorter", () => {
    expect(trimmed({ first: 1960, last: null }, 10)).toEqual({ first: 10, last: 10 });
    expect(tailWindow(10, { first: 1960, last: null })).toEqual({ first: 0, last: null });
  });
});

describe("what is kept", () => {
  const kept: Kept = { open: 3, drafts: { "3": "a", new: "b" }, side: false, page: "settings", place: { message: 4, offset: -5 } };

  it("comes back as it was", () => {
    expect(readKept(writeKept(kept))).toEqual(kept);
  });

  it("fits, and keeps the newest drafts whole", () => {
    const drafts = { a: "ä".repeat(25_000), b: "x".repeat(20_000), new: "the last" };
    const text = writeKept({ ...kept, drafts });
    expect(new TextEncoder().encode(text).length).toBeLessThanOrEqual(65_536);
    expect(readKept(text).drafts).toEqual({ b: drafts.b, new: "the last" });
  });

  it.each(["", "x", "null", "[]", "3", '{"open":"a","drafts":{"a":1},"place":{"message":"x"}}'])("stands %j", (text) => {
    expect(readKept(text)).toEqual({ open: null, drafts: {}, side: true, page: "chat", place: null });
  });
});

describe("groups", () => {
  it("are days, newest first", () => {
    const now = new Date(2026, 5, 15, 12).getTime();
    const entry = (id: number, days: number): ConversationEntry => {
      const at = now - days * 86_400_000;
      return { id, title: String(id), model: null, created_ms: at, updated_ms: at, found: null };
    };
    const groups = byDay([entry(1, 40), entry(2, 0), entry(3, 1), entry(4, 3), entry(5, 0.1), entry(6, 12)], now);
    expect(groups.map((g) => g.entries.map((e) => e.id))).toEqual([[2, 5], [3], [4], [6], [1]]);
    expect(groups[0]?.title).toBe("Today");
  });
});

describe("shortcuts", () => {
  const press = (code: string, keys: string) => ({
    code,
    ctrlKey: keys.includes("c"),
    altKey: keys.includes("a"),
    shiftKey: keys.includes("s"),
    metaKey: keys.includes("m"),
  });

  it.each([
    ["Space", "ms", true, "CmdOrCtrl+Shift+Space"],
    ["Space", "cs", false, "CmdOrCtrl+Shift+Space"],
    ["KeyK", "ca", true, "Ctrl+Alt+K"],
    ["Digit1", "ma", false, "Super+Alt+1"],
    ["F5", "a", false, "Alt+F5"],
  ])("reads %s with %s", (code, keys, mac, text) => {
    expect(readChord(press(code, keys), mac)).toEqual({ kind: "chord", text });
  });

  it("takes no plain key, and waits for one after modifiers", () => {
    expect(readChord(press("KeyK", ""), true).kind).toBe("unfit");
    expect(readChord(press("KeyK", "s"), true).kind).toBe("unfit");
    expect(readChord(press("KeyC", "m"), true).kind).toBe("unfit");
    expect(readChord(press("Digit2", "a"), false).kind).toBe("unfit");
    expect(readChord(press("F5", ""), false).kind).toBe("unfit");
    expect(readChord(press("MetaLeft", "m"), true).kind).toBe("partial");
    expect(readChord(press("Lang1", "m"), true).kind).toBe("unfit");
  });

  it("shows them as the platform does", () => {
    expect(showChord("CmdOrCtrl+Shift+Space", true)).toBe("⇧⌘Space");
    expect(showChord("CmdOrCtrl+Shift+Space", false)).toBe("Ctrl+Shift+Space");
  });
});
