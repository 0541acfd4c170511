/** What a screen reader hears of a streaming answer: whole sentences, and of code only how much there is. */
import { type Block, splitBlocks } from "./markdown/blocks";
import { plainText } from "./markdown/render";

export interface SentenceWords {
  code(language: string, lines: number): string;
}

const END = /([.!?…]["'”’)\]]*\s+|[。！？]["'”’)\]」』]*\s*|\n+)/u;

/** Splits text at the ends of its sentences and lines. The last piece may be unfinished. */
export function splitSentences(text: string): { whole: string[]; rest: string } {
  const whole: string[] = [];
  let rest = text;
  for (;;) {
    const match = END.exec(rest);
    if (!match) return { whole, rest };
    const end = match.index + match[0].length;
    const sentence = rest.slice(0, end).trim();
    rest = rest.slice(end);
    // "3." of a list, or "Dr.": too short to stop for.
    if (/^(?:\d+|\p{Lu}|Dr|Mr|Mrs|Ms|Prof|St)\.$/u.test(sentence) && !match[0].includes("\n") && rest !== "") {
      rest = `${sentence} ${rest}`;
      const next = END.exec(rest.slice(sentence.length + 1));
      if (!next) return { whole, rest };
      const to = sentence.length + 1 + next.index + next[0].length;
      whole.push(rest.slice(0, to).trim());
      rest = rest.slice(to);
      continue;
    }
    if (sentence !== "") whole.push(sentence);
  }
}

/** Gives each sentence of a growing text once. */
export class Sentences {
  /** The first blocks, which were said and cannot change any more: they are not read again. */
  private settled = 0;
  /** Sentences of the blocks after those that were said. */
  private said = 0;

  constructor(private readonly words: SentenceWords) {}

  /** What became whole since the last call; with `done`, the rest too. */
  next(text: string, done: boolean): string[] {
    const blocks = splitBlocks(text);
    // The last line may yet turn out to belong to what stands above it.
    const whole = splitBlocks(text.slice(0, text.lastIndexOf("\n") + 1)).length - 1;
    const all: string[] = [];
    let of = 0;
    for (const [index, block] of [...blocks.entries()].slice(this.settled)) {
      all.push(...this.of(block, index === blocks.length - 1 && !done));
      if (index >= whole) continue;
      this.settled = index + 1;
      of = all.length;
    }
    const fresh = all.slice(this.said);
    this.said = Math.max(this.said, all.length) - of;
    return fresh;
  }

  private of(block: Block, growing: boolean): string[] {
    if (block.kind === "code") {
      return growing && !block.closed ? [] : [this.words.code(block.language, block.code.split("\n").length)];
    }
    const { whole, rest } = splitSentences(plainText(block.source).trimEnd() + (growing ? "" : "\n"));
    return !growing && rest.trim() !== "" ? [...whole, rest.trim()] : whole;
  }
}
