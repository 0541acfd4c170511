/**
 * Formulas in Markdown: `$..$` and `\(..\)` in a line, `$$..$$` and `\[..\]` as a display. Only closed ones count. A dollar
 * sign is money unless it looks like a formula, by the rules of `inlineDollars`.
 */
import type { MarkdownIt, StateBlock, StateInline } from "markdown-it";

/** What draws a formula; gives HTML, or `null` while it cannot. */
export type Draw = (tex: string, display: boolean) => string | null;

function escaped(text: string, at: number): boolean {
  let n = 0;
  while (at - n > 0 && text.charAt(at - n - 1) === "\\") n++;
  return n % 2 === 1;
}

/** The end of a `$..$` that begins at `start`, or -1: the position of its closing dollar. */
export function inlineDollars(text: string, start: number): number {
  const before = text.charAt(start - 1);
  const first = text.charAt(start + 1);
  // "US$5", "$ 5", and the second dollar of an empty pair are no beginnings.
  if (/[\p{L}\p{N}$]/u.test(before) || first === "" || /[\s$]/.test(first)) return -1;
  for (let at = start + 1; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === "\n" && text.charAt(at + 1) === "\n") return -1;
    if (char !== "$" || escaped(text, at)) continue;
    // "$5 and $6": a closing dollar has no space before it and no digit after it.
    if (/\s/.test(text.charAt(at - 1)) || /[\p{N}\p{L}$]/u.test(text.charAt(at + 1))) return -1;
    const inside = text.slice(start + 1, at);
    // "$5 or even 6$": a number, then words and nothing of a formula.
    if (/^\d[\d.,]*\s*\p{L}/u.test(inside) && /\s\p{L}{2,}/u.test(inside) && !/[\\^_=+*/<>{}]/.test(inside)) return -1;
    return at;
  }
  return -1;
}

/**
 * Closing marks that were looked for in vain, and the line up to which (of inline text: to its end). Else a text of nothing but
 * opening marks would be searched again from each of them.
 */
const MISSING = new WeakMap<StateInline | StateBlock, Map<string, number>>();

function missing(state: StateInline | StateBlock): Map<string, number> {
  const known = MISSING.get(state) ?? new Map<string, number>();
  MISSING.set(state, known);
  return known;
}

function closing(state: StateInline, close: string, from: number): number {
  if (missing(state).has(close)) return -1;
  const end = state.src.indexOf(close, from);
  if (end < 0) missing(state).set(close, Infinity);
  return end;
}

function inline(state: StateInline, silent: boolean): boolean {
  const { src, pos } = state;
  const rest = (n: number) => src.slice(pos, pos + n);
  let content = pos;
  let end = -1;
  let after = 0;
  let display = false;
  if (rest(2) === "$$") {
    content = pos + 2;
    end = closing(state, "$$", content);
    after = 2;
    display = true;
  } else if (rest(1) === "$") {
    content = pos + 1;
    end = inlineDollars(src, pos);
    after = 1;
  } else if (rest(2) === "\\(" || rest(2) === "\\[") {
    display = rest(2) === "\\[";
    content = pos + 2;
    end = closing(state, display ? "\\]" : "\\)", content);
    after = 2;
  }
  if (end < 0 || end + after > state.posMax || src.slice(content, end).trim() === "") return false;
  if (!silent) {
    const token = state.push("math", "", 0);
    token.content = src.slice(content, end).trim();
    token.markup = src.slice(pos, end + after);
    token.meta = { display };
  }
  state.pos = end + after;
  return true;
}

function block(state: StateBlock, startLine: number, endLine: number, silent: boolean): boolean {
  const line = (n: number) => state.src.slice((state.bMarks[n] ?? 0) + (state.tShift[n] ?? 0), state.eMarks[n]);
  const first = line(startLine);
  const close = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\]" : null;
  if (!close) return false;
  const key = `${close}${String(endLine)}`;
  if (startLine <= (missing(state).get(key) ?? -1)) return false;
  const lines = [first.slice(2)];
  let last = startLine;
  while (!lines.at(-1)?.includes(close)) {
    last++;
    if (last >= endLine || line(last).trim() === "") {
      missing(state).set(key, last);
      return false;
    }
    lines.push(line(last));
  }
  const whole = lines.join("\n");
  const end = whole.indexOf(close);
  // Text after the formula: then it stands in a paragraph.
  if (whole.slice(end + 2).trim() !== "" || whole.slice(0, end).trim() === "") return false;
  if (silent) return true;
  const token = state.push("math", "", 0);
  token.block = true;
  token.content = whole.slice(0, end).trim();
  token.markup = first.slice(0, 2) + whole.slice(0, end) + close;
  token.meta = { display: true };
  token.map = [startLine, last + 1];
  state.line = last + 1;
  return true;
}

export function mathPlugin(md: MarkdownIt, draw: Draw): void {
  md.inline.ruler.before("escape", "math", inline);
  md.block.ruler.before("fence", "math", block, { alt: ["paragraph", "blockquote", "list"] });
  md.renderer.rules.math = (tokens, index) => {
    const token = tokens[index];
    if (!token) return "";
    const display = Boolean((token.meta as { display: boolean }).display);
    const html = draw(token.content, display) ?? `<code class="tex">${md.utils.escapeHtml(token.markup)}</code>`;
    return display ? `<span class="formula">${html}</span>` : html;
  };
}
