// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { splitBlocks } from "./blocks";
import { highlight } from "./highlight";
import { drawFormula } from "./katex";
import { safeAddress } from "./links";
import { makeRenderer, PLAIN } from "./render";
import { sanitize } from "./sanitize";

const render = makeRenderer({ ...PLAIN, math: drawFormula, highlight });
const page = (markdown: string) => {
  const root = document.createElement("div");
  root.innerHTML = sanitize(render(markdown));
  return root;
};

const HOSTILE = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "<svg onload=alert(1)>",
  "<iframe src=https://evil.example></iframe>",
  "<style>*{display:none}</style>",
  "<base href=https://evil.example>",
  "<form action=https://evil.example><input name=a></form>",
  "<a href=javascript:alert(1)>x</a>",
  "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](&#106;avascript:alert(1))",
  "[x](java%0ascript:alert(1))",
  "[x](data:text/html,<script>alert(1)</script>)",
  "[x](vbscript:x)",
  "[x](file:///etc/passwd)",
  "[x](tauri://localhost)",
  "[x](https://example.org/\"onmouseover=\"alert(1))",
  "![x](https://tracker.example/p.png)",
  "![x](//tracker.example/p.png)",
  "![x](data:image/svg+xml;base64,PHN2Zz4=)",
  "![<img src=x onerror=alert(1)>](https://a.example/x)",
  "[![x](https://a.example/i.png)](https://b.example)",
  "<https://evil.example/<script>>",
  "```\"><img src=x onerror=alert(1)>\ncode\n```",
  "```js\n</code></pre><img src=x onerror=alert(1)>\n```",
  "$\\href{javascript:alert(1)}{x}$",
  "$\\url{javascript:alert(1)}$",
  "$\\includegraphics{https://tracker.example/x.png}$",
  "$\\htmlClass{x}{y}\\htmlStyle{position:fixed}{y}\\htmlId{app}{y}\\htmlData{a=b}{y}$",
  "$\\text{<img src=x onerror=alert(1)>}$",
  "$\\def\\a{\\a\\a}\\a$",
  "$<annotation-xml encoding='text/html'><img src=x onerror=alert(1)></annotation-xml>$",
  "| <img src=x onerror=alert(1)> |\n| --- |\n| <script>alert(1)</script> |",
  "# <a id=app name=app>x</a>",
];

describe("hostile Markdown", () => {
  it.each(HOSTILE)("does nothing: %s", (markdown) => {
    const root = page(markdown);
    const bad = "script,img,svg,iframe,object,embed,link,style,base,form,input,textarea,video,audio,meta,annotation-xml,foreignObject";
    expect(root.querySelectorAll(bad)).toHaveLength(0);
    for (const element of root.querySelectorAll("*")) {
      for (const { name, value } of element.attributes) {
        expect(name).not.toMatch(/^on|^(?:href|src|srcset|style|id|name|action|formaction|xlink:href|background)$/i);
        if (name === "data-link") expect(value).toMatch(/^(?:https?:\/\/|mailto:)/);
      }
    }
  });

  it("is only hostile input that is refused", () => {
    const root = page("**bold** [link](https://example.org) `code`\n\n| a |\n| -: |\n| 1 |\n\n$\\frac{a}{b}$\n\n- x\n  ```js\n  let a = 1;\n  ```");
    for (const there of ["strong", "[data-link]", "code", "td[align=right]", "math mfrac", "li .hljs-keyword", "[data-copy]"]) {
      expect(root.querySelector(there), there).not.toBeNull();
    }
  });

  it("keeps text of what it refuses", () => {
    expect(page("<b>x</b>").textContent).toContain("<b>x</b>");
    expect(page("[x](javascript:alert(1))").textContent).toContain("javascript:alert(1)");
  });

  it("shows a picture as an address", () => {
    const link = page("![a cat](https://pics.example/cat.png)").querySelector<HTMLElement>("[data-link]");
    expect(link?.dataset.link).toBe("https://pics.example/cat.png");
    expect(link?.textContent).toContain("a cat");
    expect(link?.textContent).toContain("https://pics.example/cat.png");
  });

  it("takes file names for no addresses", () => {
    expect(page("see README.md and a.rs").querySelector("[data-link]")).toBeNull();
  });

  it("leaves nothing out of what is nested too deeply to draw", () => {
    const list = Array.from({ length: 40 }, (_, level) => `${"  ".repeat(level)}- level ${String(level)}`).join("\n");
    expect(render(list)).toContain("level 39");
    expect(render(">".repeat(60) + " deep")).toContain("deep");
    expect(render(list.split("\n").slice(0, 10).join("\n"))).toContain("<li>");
  });

  it("stands what is nested deeply", () => {
    expect(() => page(">".repeat(20_000))).not.toThrow();
    expect(() => page("[".repeat(20_000))).not.toThrow();
    expect(() => page("*a ".repeat(5_000))).not.toThrow();
    expect(() => page(`$${"{".repeat(3_000)}$`)).not.toThrow();
  });
});

describe("a text made to take long", () => {
  const long = (piece: string) => piece.repeat(50_000 / piece.length);
  const TEXTS = {
    spaces: `a${long(" ")}b`,
    "inline openings": long("\\("),
    "display openings": long("\\[a "),
    "display openings, a line each": long("\\[\n"),
    "display openings between paragraphs": long("x\n\\[\n"),
    dollars: long("$$a\n"),
    brackets: long("!["),
    stars: long("**a "),
    pipes: `|a|\n|-|\n${long("|x|y|z")}`,
    "words in C#": `\`\`\`cs\n${long("a b\n")}\n\`\`\``,
    "names in TOML": `\`\`\`toml\n${long("a.")}\n\`\`\``,
  };
  it.each(Object.entries(TEXTS))("does not: %s", (_name, text) => {
    const begin = performance.now();
    for (const block of splitBlocks(text)) {
      if (block.kind === "text") render(block.source);
      else highlight(block.code, block.language);
    }
    // Each took one second to ten when it took the square of its length; now some hundredths.
    expect(performance.now() - begin).toBeLessThan(700);
  });
});

describe("addresses", () => {
  it.each(["https://example.org/", "http://localhost:8080/x?y#z", "mailto:a@example.org"])("takes %s", (url) => {
    expect(safeAddress(url)).not.toBeNull();
  });
  it.each(["javascript:x", "data:,x", "file:///x", "ftp://x/", "blob:https://x/1", "//example.org", "x", "", "tauri://x", "mail to:x"])(
    "refuses %s",
    (url) => {
      expect(safeAddress(url)).toBeNull();
    },
  );
});
