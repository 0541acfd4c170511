/** The page never leaves itself: whatever could navigate or take in a foreign page is refused. */
export function keepInside(page: Document): void {
  const refuse = (event: Event) => {
    event.preventDefault();
  };
  const link = (event: Event) => {
    if (event.target instanceof Element && event.target.closest("a[href]")) event.preventDefault();
  };
  page.addEventListener("click", link, true);
  page.addEventListener("auxclick", link, true);
  page.addEventListener("submit", refuse, true);
  // A file dropped on a page replaces it.
  page.addEventListener("dragover", refuse);
  page.addEventListener("drop", (event) => {
    const field = event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLInputElement;
    if (!field || event.dataTransfer?.files.length) event.preventDefault();
  });
}
