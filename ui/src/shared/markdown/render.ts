/** Markdown to HTML, by markdown-it with HTML off. What it gives still has to go through `sanitize`. */
import MarkdownIt, { type MarkdownIt as Markdown } from "markdown-it";
import { safeAddress } from "./links";
import { type Draw, mathPlugin } from "./math";

export interface Words {
  copy: string;
  image: string;
}

export interface Parts {
  /** `null`: not loaded (yet); the source is shown. */
  math: Draw | null;
  /** Gives HTML, or `null` for a language that it does not know. */
  highlight: ((code: string, language: string) => string | null) | null;
  words: Words;
}

/** Of lists and quotes inside each other, twice counted (a list and its item). */
const MOST_LEVELS = 40;

/** A renderer over `parts`, which may gain what is loaded later. */
export function makeRenderer(parts: Parts): (source: string) => string {
  const md = new MarkdownIt({ html: false, linkify: true, breaks: false, typographer: false, maxNesting: MOST_LEVELS });
  // "README.md" is a file and no host: only whole addresses become links.
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  md.validateLink = (url) => safeAddress(url) !== null;
  md.use((it: Markdown) => {
    mathPlugin(it, (tex, display) => parts.math?.(tex, display) ?? null);
  });
  const escape = md.utils.escapeHtml;

  const link = (url: string) => `<a role="link" tabindex="0" class="link" data-link="${escape(url)}" title="${escape(url)}">`;
  md.renderer.rules.link_open = (tokens, index) => link(String(tokens[index]?.attrGet("href") ?? ""));

  // Pictures would tell their host that and when this was read.
  md.renderer.rules.image = (tokens, index) => {
    const token = tokens[index];
    const url = String(token?.attrGet("src") ?? "");
    const label = escape(token?.content || parts.words.image);
    return `${link(url)}<span class="picture">${label}</span> <span class="address">${escape(url)}</span></a>`;
  };

  md.renderer.rules.fence = md.renderer.rules.code_block = (tokens, index) => {
    const token = tokens[index];
    const code = (token?.content ?? "").replace(/\n$/, "");
    const language = (token?.info ?? "").trim().split(/[\s{]/)[0] ?? "";
    const html = parts.highlight?.(code, language) ?? escape(code);
    const button = `<button type="button" class="copy" data-copy="">${escape(parts.words.copy)}</button>`;
    return `<div class="code"><div class="code-head"><span>${escape(language)}</span>${button}</div><pre tabindex="0"><code>${html}</code></pre></div>`;
  };

  // One level for all, under the heading of the message: a model's levels make no outline of this page.
  md.renderer.rules.heading_open = (tokens, index) => `<h3 class="level-${tokens[index]?.tag.slice(1) ?? "3"}">`;
  md.renderer.rules.heading_close = () => "</h3>\n";

  md.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>';
  md.renderer.rules.table_close = () => "</table></div>";
  for (const cell of ["th_open", "td_open"] as const) {
    md.renderer.rules[cell] = (tokens, index, options, _env, self) => {
      const token = tokens[index];
      // `text-align` as a style would be an attribute that the gate refuses.
      const align = /text-align:(\w+)/.exec(String(token?.attrGet("style") ?? ""))?.[1];
      if (token) token.attrs = align ? [["align", align]] : null;
      return self.renderToken(tokens, index, options);
    };
  }
  return (source) => {
    const env = {};
    const tokens = md.parse(source, env);
    // Beyond its limit the parser leaves text out; nothing is to be missing, so such a block is shown as it was written.
    if (tokens.some((token) => token.level >= MOST_LEVELS - 1)) return `<pre tabindex="0">${escape(source)}</pre>`;
    return md.renderer.render(tokens, md.options, env);
  };
}

export const PLAIN: Parts = { math: null, highlight: null, words: { copy: "Copy", image: "Image" } };

const TEXT = makeRenderer(PLAIN);

/** The text of a piece of Markdown, for a screen reader's announcements. */
export function plainText(source: string): string {
  return TEXT(source)
    .replace(/<(?:\/p|\/h\d|\/li|\/t[hd]|br)\s*\/?>/g, " \n")
    .replace(/<[^>]*>/g, "")
    .replace(/&lt;/g, "<")
    .replace(/&gt;/g, ">")
    .replace(/&quot;/g, '"')
    .replace(/&amp;/g, "&");
}
