/**
 * Splits Markdown into pieces that render one by one, so that a streaming answer re-renders only its last piece. A piece is
 * one or more of CommonMark's top-level blocks; what could still change with more text stays in the last one.
 */

export interface TextBlock {
  kind: "text";
  source: string;
}

/** A fence at the margin. Fences inside lists stay part of their list. */
export interface CodeBlock {
  kind: "code";
  /** The first word of the info string; may be empty. */
  language: string;
  code: string;
  /** Its closing fence has been seen. */
  closed: boolean;
}

export type Block = TextBlock | CodeBlock;

const FENCE = /^(\s*)(`{3,}|~{3,})(.*)$/;
const LIST_ITEM = /^ {0,3}(?:[-+*]|\d{1,9}[.)])(?:\s|$)/;

interface Fence {
  char: string;
  length: number;
  indent: number;
}

function opensFence(line: string): (Fence & { info: string }) | null {
  const match = FENCE.exec(line);
  if (!match) return null;
  const [, space = "", marks = "", info = ""] = match;
  const char = marks.charAt(0);
  // A backtick in the info string makes it inline code.
  if (char === "`" && info.includes("`")) return null;
  return { char, length: marks.length, indent: space.length, info: info.trim() };
}

function closesFence(line: string, fence: Fence): boolean {
  const match = FENCE.exec(line);
  if (!match) return false;
  const [, , marks = "", rest = ""] = match;
  return marks.charAt(0) === fence.char && marks.length >= fence.length && rest.trim() === "";
}

/** Whether a display formula is open after this line, given whether one was before it. */
function displayMath(line: string, open: "$$" | "\\]" | null): "$$" | "\\]" | null {
  if (open) return line.includes(open) || line.trim() === "" ? null : open;
  const start = line.trimStart();
  if (start.startsWith("$$") && !start.slice(2).includes("$$")) return "$$";
  if (start.startsWith("\\[") && !start.includes("\\]")) return "\\]";
  return null;
}

function unindent(line: string, by: number): string {
  let n = 0;
  while (n < by && line.charAt(n) === " ") n++;
  return line.slice(n);
}

export function splitBlocks(text: string): Block[] {
  const blocks: Block[] = [];
  let current: string[] = [];
  /** Of `current`: it began as a list, so that indented and further items belong to it. */
  let list = false;
  let blank = false;
  let math: "$$" | "\\]" | null = null;
  /** A fence inside `current`. */
  let inner: Fence | null = null;
  let code: { block: CodeBlock; fence: Fence; lines: string[] } | null = null;

  const flush = () => {
    const source = current.join("\n").trimEnd();
    if (source !== "") blocks.push({ kind: "text", source });
    current = [];
    list = blank = false;
    math = null;
  };

  for (const line of text.replace(/\r\n?/g, "\n").split("\n")) {
    if (code) {
      if (closesFence(line, code.fence)) {
        code.block.closed = true;
        code.block.code = code.lines.join("\n");
        code = null;
      } else {
        code.lines.push(unindent(line, code.fence.indent));
      }
      continue;
    }
    if (inner) {
      current.push(line);
      if (closesFence(line, inner)) inner = null;
      continue;
    }
    if (line.trim() === "") {
      math = null;
      if (current.length > 0) current.push(line);
      blank = true;
      continue;
    }
    const fence = math ? null : opensFence(line);
    const atMargin = fence && (fence.indent === 0 || (fence.indent < 4 && !list));
    if (fence && atMargin) {
      flush();
      const block: CodeBlock = { kind: "code", language: fence.info.split(/[\s{]/)[0] ?? "", code: "", closed: false };
      blocks.push(block);
      code = { block, fence, lines: [] };
      continue;
    }
    const item = LIST_ITEM.test(line);
    const belongs = /^\s/.test(line) || (list && item);
    if (blank && current.length > 0 && !belongs) flush();
    if (current.length === 0) list = item;
    blank = false;
    current.push(line);
    if (fence) inner = fence;
    else math = displayMath(line, math);
  }
  if (code) code.block.code = code.lines.join("\n");
  flush();
  return blocks;
}
