import { describe, expect, it } from "vitest";
import { type Block, splitBlocks } from "./blocks";

const shape = (blocks: Block[]) =>
  blocks.map((b) => (b.kind === "code" ? `code:${b.language}:${b.closed ? "closed" : "open"}:${b.code}` : b.source));

describe("splitBlocks", () => {
  it("splits paragraphs at blank lines", () => {
    expect(shape(splitBlocks("one\nstill one\n\n\ntwo\n"))).toEqual(["one\nstill one", "two"]);
  });

  it("takes fences at the margin out, with and without blank lines around them", () => {
    expect(shape(splitBlocks("a\n```rust\nfn x() {}\n\n}\n```\nb"))).toEqual(["a", "code:rust:closed:fn x() {}\n\n}", "b"]);
  });

  it("leaves an unclosed fence open, without losing what follows", () => {
    expect(shape(splitBlocks("```py\na = 1\n\n# not a heading"))).toEqual(["code:py:open:a = 1\n\n# not a heading"]);
  });

  it("closes a fence only by one of its kind and at least its length", () => {
    expect(shape(splitBlocks("````\n```\n~~~\n````\nend"))).toEqual(["code::closed:```\n~~~", "end"]);
  });

  it("takes a line of inline code for no fence", () => {
    expect(shape(splitBlocks("```a``` b\n\nc"))).toEqual(["```a``` b", "c"]);
  });

  it("keeps a list with blank lines, indented parts and fences inside together", () => {
    const list = "1. one\n\n   more of one\n\n   ```js\n   x\n\n   y\n   ```\n\n2. two";
    expect(shape(splitBlocks(`${list}\n\nafter`))).toEqual([list, "after"]);
  });

  it("keeps a display formula together", () => {
    expect(shape(splitBlocks("$$\nx\n= y\n$$\n\nz"))).toEqual(["$$\nx\n= y\n$$", "z"]);
    expect(shape(splitBlocks("\\[\nx\n```\n\\]\n\nz"))).toEqual(["\\[\nx\n```\n\\]", "z"]);
  });

  it("reads Windows line ends", () => {
    expect(shape(splitBlocks("a\r\n\r\nb"))).toEqual(["a", "b"]);
  });

  it("freezes: whatever comes later, all blocks but the last stay as they are", () => {
    const text = "# T\n\npara\nmore\n\n- a\n- b\n\n  c\n\n```js\nlet x\n\n```\n\n| a |\n| - |\n| b |\n\n$$\nx\n$$\n\n> q\n\nend";
    for (let n = 0; n <= text.length; n++) {
      const now = shape(splitBlocks(text.slice(0, n))).slice(0, -1);
      // A line that is not whole yet may turn out to begin something else, so the comparison is with the whole text's blocks.
      const then = shape(splitBlocks(text));
      const whole = text.slice(0, n).endsWith("\n") || text.charAt(n) === "\n" || n === text.length;
      if (whole) expect(then.slice(0, now.length)).toEqual(now);
    }
  });
});
