// What the reader wrote, and its editor.
import { button, element, fitHeight, isSend } from "./dom.js";
import { copyButton } from "./markdown.js";

export class UserView {
  /** `onEdit(text)` wants the conversation to go on from here with another text. */
  constructor(message, { onEdit }) {
    this.message = message;
    this.onEdit = onEdit;
    this.text = element("p", { className: "text", textContent: message.content });
    this.edit = button("Edit", () => this.open());
    this.actions = element("div", { className: "actions" }, this.edit, copyButton(() => message.content));
    this.body = element("div", { className: "body" }, this.text, this.actions);
    this.element = element("li", { className: "message user" }, element("h2", { textContent: "You" }), this.body);
  }

  update() {}

  /** Nothing is edited while an answer is under way. */
  setBusy(busy) {
    this.edit.disabled = busy;
  }

  open() {
    const area = element("textarea", { value: this.message.content, rows: 1, "aria-label": "Edit the message" });
    const send = element("button", { type: "submit", className: "primary", textContent: "Send" });
    const hint = element("span", { textContent: "What follows it will be replaced." });
    const form = element("form", { className: "editor" }, area,
      element("div", { className: "bar" }, hint, button("Cancel", () => this.close()), send));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (area.value.trim()) this.onEdit(area.value);
    });
    form.addEventListener("keydown", (event) => this.onKey(event, form));
    area.addEventListener("input", () => fitHeight(area));
    this.body.replaceChildren(form);
    fitHeight(area);
    area.focus();
  }

  onKey(event, form) {
    if (event.key === "Escape") {
      event.stopPropagation();
      this.close();
    } else if (event.target.tagName === "TEXTAREA" && isSend(event)) {
      event.preventDefault();
      form.requestSubmit();
    }
  }

  close() {
    this.body.replaceChildren(this.text, this.actions);
    this.edit.focus();
  }
}
