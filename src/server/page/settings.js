// The settings: a form, the values it keeps, and the request fields they become. An empty field is the model's default.

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const TEXTS = ["system", "tools", "key"];

export class Settings {
  /** `values` are what save() was last given; `thinking` is the switch beside the message box. */
  constructor(dialog, thinking, values, save) {
    this.dialog = dialog;
    this.form = dialog.querySelector("form");
    this.error = dialog.querySelector("#settings-error");
    this.thinking = thinking;
    this.save = save;
    this.fill(values);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault(); // the form is valid, or the browser would have said so
      this.close();
    });
    this.form.addEventListener("input", () => this.keep());
    thinking.addEventListener("change", () => this.keep());
    dialog.querySelector("#reset-settings").addEventListener("click", () => {
      this.fill({ thinking: this.values.thinking });
      this.keep();
    });
  }

  fill(values) {
    for (const name of [...NUMBERS, ...TEXTS]) this.form.elements[name].value = values[name] ?? "";
    this.thinking.checked = values.thinking ?? true;
    this.values = { thinking: true, ...values };
  }

  open() {
    this.dialog.showModal();
  }

  close() {
    if (!this.problem()) this.dialog.close();
  }

  keep() {
    this.values = { thinking: this.thinking.checked };
    for (const name of [...NUMBERS, ...TEXTS]) {
      const text = this.form.elements[name].value.trim();
      if (text) this.values[name] = text;
    }
    this.error.textContent = this.problem() ?? "";
    this.error.hidden = !this.problem();
    this.save(this.values);
  }

  /** Why no request can be made with these settings; null if one can. Values out of range are the server's to refuse. */
  problem() {
    return toolsError(this.values.tools);
  }

  /** The fields of a chat completion request, without `messages`; there is no problem(). */
  requestFields() {
    const fields = { chat_template_kwargs: { enable_thinking: this.values.thinking } };
    for (const name of NUMBERS) if (name in this.values) fields[name] = Number(this.values[name]);
    if (this.values.tools) fields.tools = JSON.parse(this.values.tools);
    return fields;
  }
}

function toolsError(text) {
  if (!text) return null;
  try {
    return Array.isArray(JSON.parse(text)) ? null : "Tools: expected a JSON array of functions, found something else.";
  } catch (error) {
    return `Tools: expected a JSON array of functions. ${error.message}`;
  }
}
