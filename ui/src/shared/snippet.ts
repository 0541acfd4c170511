/** A search result's text with marks around what was found, as pieces. */
export function snippetParts(snippet: string): { text: string; hit: boolean }[] {
  const parts: { text: string; hit: boolean }[] = [];
  let hit = false;
  // eslint-disable-next-line no-control-regex -- the marks of the engine's search
  for (const piece of snippet.split(/([\u0002\u0003])/)) {
    if (piece === "\u0002") hit = true;
    else if (piece === "\u0003") hit = false;
    else if (piece !== "") parts.push({ text: piece, hit });
  }
  return parts;
}
