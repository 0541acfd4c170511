import katex from "katex";

const CACHE = new Map<string, string>();

/** Longer ones are no formulas, and KaTeX recurses into what it reads. */
const LONGEST = 10_000;

/** A formula as MathML, which the web view draws itself: no fonts and no styles of its own. `null`: not drawable. */
export function drawFormula(tex: string, display: boolean): string | null {
  const key = (display ? "d" : "i") + tex;
  const known = CACHE.get(key);
  if (known !== undefined) return known;
  const html = made(tex, display);
  if (html === null) return null;
  if (CACHE.size > 500) CACHE.clear();
  CACHE.set(key, html);
  return html;
}

function made(tex: string, displayMode: boolean): string | null {
  if (tex.length > LONGEST) return null;
  try {
    return mathml(tex, displayMode);
  } catch {
    // Nested too deeply for the stack; errors of the formula itself do not throw.
    return null;
  }
}

function mathml(tex: string, displayMode: boolean): string {
  return katex
    .renderToString(tex, {
      output: "mathml",
      displayMode,
      throwOnError: false,
      trust: false,
      strict: false,
      // Bounds on what a hostile formula may cost.
      maxExpand: 500,
      maxSize: 20,
    })
    // The source of the formula, which a web view without MathML would show twice.
    .replace(/<annotation[^>]*>[^<]*<\/annotation>/g, "")
    .replace(/<\/?semantics>/g, "");
}
