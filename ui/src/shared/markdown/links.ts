/** The addresses that a link may have. Everything else stays text. */
export function safeAddress(address: string): string | null {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") return url.href;
  if ((url.protocol === "http:" || url.protocol === "https:") && url.hostname !== "") return url.href;
  return null;
}
