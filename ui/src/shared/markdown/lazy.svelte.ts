/** Highlighting and formulas come with the first answer that needs them; what is on the page then renders again. */
import { strings } from "../../strings";
import { sanitize } from "./sanitize";
import { makeRenderer, type Parts } from "./render";

const parts: Parts = { math: null, highlight: null, words: { copy: strings.code.copy, image: strings.link.image } };
const render = makeRenderer(parts);

const loaded = $state({ math: false, highlight: false });
let askedMath = false;
let askedHighlight = false;

function wantMath(): void {
  if (askedMath) return;
  askedMath = true;
  void import("./katex").then((part) => {
    parts.math = part.drawFormula;
    loaded.math = true;
  });
}

function wantHighlight(): void {
  if (askedHighlight) return;
  askedHighlight = true;
  void import("./highlight").then((part) => {
    parts.highlight = part.highlight;
    loaded.highlight = true;
  });
}

/** Safe HTML of a piece of Markdown. Reactive: changes once, when a part that it needs has come. */
export function html(source: string): string {
  const math = /\$|\\\(|\\\[/.test(source);
  const code = /```|~~~/.test(source);
  if (math && !loaded.math) wantMath();
  if (code && !loaded.highlight) wantHighlight();
  return sanitize(render(source));
}

/** Safe HTML of code, or `null` for a language that is not known (yet). */
export function codeHtml(code: string, language: string): string | null {
  if (language === "") return null;
  if (!loaded.highlight) {
    wantHighlight();
    return null;
  }
  const made = parts.highlight?.(code, language) ?? null;
  return made === null ? null : sanitize(made);
}
