/** What a rejected call carries; `code` is stable, `message` is for humans. */
export interface Failure {
  code: string;
  message: string;
}

export function asFailure(e: unknown): Failure {
  if (typeof e === "object" && e !== null && "code" in e && "message" in e) {
    return { code: String(e.code), message: String(e.message) };
  }
  return { code: "internal", message: e instanceof Error ? e.message : String(e) };
}

/** The engine's message without its `hint:` lines, and those. */
export function splitHint(message: string): { text: string; hint: string } {
  const text: string[] = [];
  const hint: string[] = [];
  for (const line of message.split("\n")) {
    const found = /^hint:\s*(.*)$/.exec(line.trim());
    if (found) hint.push(found[1] ?? "");
    else text.push(line);
  }
  return { text: text.join("\n").trim(), hint: hint.join(" ") };
}
