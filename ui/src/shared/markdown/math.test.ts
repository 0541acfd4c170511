import { describe, expect, it } from "vitest";
import { inlineDollars } from "./math";
import { makeRenderer, PLAIN } from "./render";

const draw = (tex: string, display: boolean) => `{${display ? "D" : "I"}:${tex}}`;
const render = makeRenderer({ ...PLAIN, math: draw });
const formulas = (text: string) => render(text).match(/\{[DI]:[^}]*\}/g) ?? [];

describe("formulas", () => {
  it.each([
    ["$x^2$", ["{I:x^2}"]],
    ["so $a$ and $b$.", ["{I:a}", "{I:b}"]],
    ["\\(a_1\\) and \\(b\\)", ["{I:a_1}", "{I:b}"]],
    ["$$\nx = 1\n$$", ["{D:x = 1}"]],
    ["$$x = 1$$", ["{D:x = 1}"]],
    ["so $$x$$ it is", ["{D:x}"]],
    ["\\[ x \\]", ["{D:x}"]],
    ["\\[\nx\n\\]", ["{D:x}"]],
    ["- item $x$\n- \\[ y \\]", ["{I:x}", "{D:y}"]],
    ["($n$)", ["{I:n}"]],
    ["$5 = x$", ["{I:5 = x}"]],
    ["$2n$", ["{I:2n}"]],
    ["$a \\$ b$", ["{I:a \\$ b}"]],
  ])("finds those of %j", (text, found) => {
    expect(formulas(text)).toEqual(found);
  });

  it.each([
    "It costs $5 and $6.",
    "$5, or $6",
    "$5-$6",
    "US$5 and A$6",
    "from $5 to 10$ a piece",
    "$ 5 and 6 $",
    "`$x$`",
    "```\n$x$\n```",
    "\\$x\\$",
    "a $x that does not end",
    "$$ never closed",
    "\\( never closed",
    "$a\n\nb$",
    "$HOME and $PATH",
    "costs 5$ or 6$ each",
  ])("finds none in %j", (text) => {
    expect(formulas(text)).toEqual([]);
  });

  it("shows the source while it cannot draw", () => {
    const plain = makeRenderer(PLAIN);
    expect(plain("$a<b$")).toContain('<code class="tex">$a&lt;b$</code>');
  });

  it("leaves the Markdown around a formula alone", () => {
    expect(render("**b** $x$ *i*")).toContain("<strong>b</strong> {I:x} <em>i</em>");
  });

  it("looks for the end from where it is told", () => {
    expect(inlineDollars("$a$", 0)).toBe(2);
    expect(inlineDollars("$a", 0)).toBe(-1);
    expect(inlineDollars("$a$1", 0)).toBe(-1);
  });
});
