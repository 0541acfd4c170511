/** The last gate of everything that becomes HTML: a short list of elements and attributes, and no address at all. */
import DOMPurify, { type Config } from "dompurify";

const TEXT = "p br hr strong em s del h1 h2 h3 h4 h5 h6 blockquote ul ol li code pre a span table thead tbody tr th td";
const CODE = "div button";
// What KaTeX's MathML is made of.
const MATH =
  "math mrow mi mo mn ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle mpadded mphantom menclose mglyph";

const CONFIG: Config = {
  ALLOWED_TAGS: [...TEXT.split(" "), ...CODE.split(" "), ...MATH.split(" ")],
  ALLOWED_ATTR: [
    ...["class", "role", "tabindex", "title", "start", "align", "type", "aria-label", "data-link", "data-copy"],
    ...["display", "mathvariant", "stretchy", "fence", "separator", "lspace", "rspace", "minsize", "maxsize", "accent"],
    ...["accentunder", "scriptlevel", "displaystyle", "linethickness", "columnalign", "columnspacing", "rowspacing", "rowlines"],
    ...["columnlines", "width", "height", "depth", "voffset", "mathcolor", "mathbackground", "notation", "largeop", "movablelimits"],
    ...["symmetric", "form", "columnspan"],
  ],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  // `href`, `src`, `style`, `id` and `name` are not on the list: nothing loads, moves or clobbers.
  RETURN_TRUSTED_TYPE: false,
};

export function sanitize(html: string): string {
  return DOMPurify.sanitize(html, CONFIG);
}
