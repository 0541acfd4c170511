/** A key press as the text of a global shortcut (`CmdOrCtrl+Shift+Space`), and such a text for people. */

interface Press {
  code: string;
  ctrlKey: boolean;
  altKey: boolean;
  shiftKey: boolean;
  metaKey: boolean;
}

const FUNCTION = /^F([1-9]|1\d|2[0-4])$/;
const NAMED = new Set([
  ...["Space", "Enter", "Tab", "Backspace", "Delete", "Insert", "Home", "End", "PageUp", "PageDown"],
  ...["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Minus", "Equal", "BracketLeft", "BracketRight", "Backslash"],
  ...["Semicolon", "Quote", "Comma", "Period", "Slash", "Backquote"],
]);

function keyName(code: string): string | null {
  const simple = /^(?:Key([A-Z])|Digit(\d))$/.exec(code);
  if (simple) return simple[1] ?? simple[2] ?? null;
  return FUNCTION.test(code) || NAMED.has(code) ? code : null;
}

/** `partial`: only modifiers so far. `unfit`: no shortcut, because it would take a plain key, or a common command, from every program. */
export type Chord = { kind: "chord"; text: string } | { kind: "partial" } | { kind: "unfit" };

export function readChord(press: Press, mac: boolean): Chord {
  if (/^(?:Control|Alt|Shift|Meta|OS)/.test(press.code) || press.code === "") return { kind: "partial" };
  const key = keyName(press.code);
  if (key === null) return { kind: "unfit" };
  if (!(press.ctrlKey || press.altKey || press.metaKey)) return { kind: "unfit" };
  const modifiers = [press.ctrlKey, press.altKey, press.metaKey, press.shiftKey].filter(Boolean).length;
  // Copy, paste and their kind.
  if (modifiers < 2 && /^[A-Z\d]$/.test(key)) return { kind: "unfit" };
  const parts: string[] = [];
  const command = mac ? press.metaKey : press.ctrlKey;
  const other = mac ? press.ctrlKey : press.metaKey;
  if (command) parts.push("CmdOrCtrl");
  if (other) parts.push(mac ? "Ctrl" : "Super");
  if (press.altKey) parts.push("Alt");
  if (press.shiftKey) parts.push("Shift");
  return { kind: "chord", text: [...parts, key].join("+") };
}

/** The order in which macOS writes them. */
const MAC_ORDER = "⌃⌥⇧⌘";
const MAC: Record<string, string> = { cmdorctrl: "⌘", cmd: "⌘", command: "⌘", super: "⌘", ctrl: "⌃", control: "⌃", alt: "⌥", option: "⌥", shift: "⇧" };
const OTHER: Record<string, string> = { cmdorctrl: "Ctrl", commandorcontrol: "Ctrl", control: "Ctrl", option: "Alt" };

export function showChord(text: string, mac: boolean): string {
  const parts = text.split("+").filter((part) => part !== "");
  const shown = parts.map((part) => (mac ? MAC : OTHER)[part.toLowerCase()] ?? part.replace(/^Arrow/, ""));
  const rank = (part: string) => (MAC_ORDER.includes(part) ? MAC_ORDER.indexOf(part) : MAC_ORDER.length);
  return mac ? shown.sort((a, b) => rank(a) - rank(b)).join("") : shown.join("+");
}
