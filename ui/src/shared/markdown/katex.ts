import katex from "katex";

const CACHE = new Map<string, string>();

/** A formula as MathML, which the web view draws itself: no fonts and no styles of its own. */
export function drawFormula(tex: string, display: boolean): string {
  const key = (display ? "d" : "i") + tex;
  const known = CACHE.get(key);
  if (known !== undefined) return known;
  const html = katex
    .renderToString(tex, {
      output: "mathml",
      displayMode: display,
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
  if (CACHE.size > 500) CACHE.clear();
  CACHE.set(key, html);
  return html;
}
