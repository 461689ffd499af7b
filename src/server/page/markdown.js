// Markdown from a model to nodes of this page. What a model writes is not trusted: raw HTML becomes text, images become
// links, and what the renderer makes of the rest goes through DOMPurify with a short list of tags. (The third lock is
// the Content-Security-Policy, in page.cpp.)
import "./lib/marked.js"; // sets globalThis.marked
import DOMPurify from "./lib/purify.js";
import { highlight, loadHighlighter } from "./highlight.js";

const SANITIZE = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["align", "start"], // the expression above would be held against these too
  RETURN_DOM_FRAGMENT: true,
};

const { marked } = globalThis;

marked.use({
  headerIds: false,
  mangle: false,
  renderer: {
    html: escape,
    checkbox: (checked) => (checked ? "☑ " : "☐ "),
    // Loading an image would tell its server that this conversation took place.
    image: (href, title, text) => `<a href="${escape(href ?? "")}">${escape(text || href || "image")}</a>`,
    code(code, info) {
      const language = (info ?? "").match(/^[\w+#.-]+/)?.[0] ?? "";
      const body = highlight(code, language) ?? escape(code);
      return `<pre><code class="language-${escape(language)}">${body}\n</code></pre>\n`;
    },
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

/** Shows a text that grows: blocks that have not changed keep their nodes, so that a selection in them survives. */
export class MarkdownView {
  /** `onBlock` gets the text of each block once another begins behind it. */
  constructor(element, onBlock = () => {}) {
    this.element = element;
    this.onBlock = onBlock;
    this.blocks = []; // {raw, text, nodes}
    this.told = 0; // blocks given to onBlock
  }

  update(text) {
    this.text = text;
    const tokens = marked.lexer(text);
    let same = 0;
    while (same < this.blocks.length && this.blocks[same].raw === tokens[same]?.raw) same += 1;
    for (const block of this.blocks.splice(same)) block.nodes.forEach((node) => node.remove());
    for (const token of tokens.slice(same)) this.append(token);
    this.tell(this.blocks.length - 1);
  }

  /** The text is complete: renders it anew, since a link's target may stand behind its use. */
  finish(text) {
    this.redraw(text);
    this.tell(this.blocks.length);
  }

  redraw(text) {
    for (const block of this.blocks.splice(0)) block.nodes.forEach((node) => node.remove());
    this.update(text);
  }

  append(token) {
    const fragment = DOMPurify.sanitize(marked.parser([token]), SANITIZE);
    const text = fragment.textContent.trim();
    fragment.querySelectorAll("pre").forEach((block) => dress(block));
    const nodes = [...fragment.childNodes];
    this.element.append(...nodes);
    this.blocks.push({ raw: token.raw, text, nodes });
    if (token.type === "code" && token.lang && !globalThis.hljs) this.awaitColours();
  }

  awaitColours() {
    if (this.waiting) return;
    this.waiting = true;
    loadHighlighter().then(() => this.redraw(this.text), () => {}); // without it code stays plain
  }

  tell(end) {
    for (; this.told < end; this.told += 1) {
      if (this.blocks[this.told].text) this.onBlock(this.blocks[this.told].text);
    }
  }
}

// The language's name and a button to copy, around a block of code.
function dress(block) {
  const code = block.querySelector("code");
  const language = /language-(\S+)/.exec(code?.className ?? "")?.[1] ?? "";
  block.tabIndex = 0; // long lines scroll, by keyboard too
  block.setAttribute("role", "group");
  block.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
  const figure = document.createElement("div");
  figure.className = "listing";
  const bar = document.createElement("div");
  bar.className = "listing-bar";
  bar.append(Object.assign(document.createElement("span"), { textContent: language }), copyButton(() => code.textContent));
  block.replaceWith(figure);
  figure.append(bar, block);
}

/** A button that copies what `text()` gives. Browsers have no clipboard for pages from other machines over HTTP. */
export function copyButton(text) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

function escape(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (character) => names[character]);
}
