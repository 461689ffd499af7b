// A tool call: its name and arguments as they arrive, and a field for its result. This page runs no tools; the reader says what
// came of them.
import { button, element, fitHeight } from "./dom.js";

export class CallView {
  /** `onResult()` is called when the reader has filled in a result. */
  constructor(call, onResult) {
    this.call = call;
    this.arguments = element("code");
    this.area = element("textarea", { rows: 1, placeholder: "What the tool answers" });
    this.area.ariaLabel = `Result of ${call.name}`;
    this.area.addEventListener("input", () => fitHeight(this.area));
    this.send = button("Use as result", () => {
      this.call.result = this.area.value;
      onResult();
    });
    this.form = element("div", { className: "result-form", hidden: true }, this.area, this.send);
    this.result = element("pre", { className: "result", hidden: true, "aria-label": `Result of ${call.name}` });
    this.name = element("span", { className: "name" });
    this.element = element("div", { className: "call", role: "group" },
      element("p", {}, "Calls ", this.name), element("pre", {}, this.arguments), this.form, this.result);
  }

  setBusy(busy) {
    this.send.disabled = busy;
  }

  update(complete) {
    const { name, arguments: text, result } = this.call;
    this.element.ariaLabel = `Call of ${name}`;
    this.name.textContent = name;
    this.arguments.textContent = complete ? pretty(text) : text;
    this.form.hidden = !complete || result !== undefined;
    this.result.hidden = result === undefined;
    this.result.textContent = result ?? "";
  }
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // stopped in the middle
  }
}
