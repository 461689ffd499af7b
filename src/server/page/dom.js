// Making elements.

/** `element("button", {type: "button", className: "x", "aria-label": "y"}, child, "text", ...)`; null children are left out. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function button(label, onclick, properties = {}) {
  return element("button", { type: "button", textContent: label, onclick, ...properties });
}

/** A textarea as high as its text. */
export function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

/** Whether a key press is the Enter that sends. With an input method Enter chooses a word; on a phone it breaks the line. */
export function isSend(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
}
