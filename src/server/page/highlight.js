// Colours for code. The library is large, so it is loaded with the first block that wants it.

let loading = null;

/** Resolves once blocks can be coloured. */
export function loadHighlighter() {
  loading ??= import("./lib/highlight.js");
  return loading;
}

/** `code` as HTML, or null while the library is not there or does not know the language. */
export function highlight(code, language) {
  const library = globalThis.hljs;
  if (!library?.getLanguage(language)) return null;
  return library.highlight(language, code, true).value;
}
