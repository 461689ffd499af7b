// The message box: text, the buttons to send and to stop, and a line for what went wrong.
import { fitHeight, isSend } from "./dom.js";

const NOTICE_MS = 10000; // long enough to reach its button

export class Composer {
  /** `callbacks`: onSend(text), which says whether the text was taken, onStop(), onEditLast(). */
  constructor(form, callbacks) {
    this.form = form;
    this.callbacks = callbacks;
    this.area = form.querySelector("#prompt");
    this.send = form.querySelector("#send");
    this.stop = form.querySelector("#stop");
    this.notice = form.querySelector("#notice");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.area.addEventListener("keydown", (event) => this.onKey(event));
    this.area.addEventListener("input", () => this.onInput());
    this.stop.addEventListener("click", () => callbacks.onStop());
    this.setBusy(false);
  }

  onKey(event) {
    if (isSend(event)) {
      event.preventDefault();
      this.form.requestSubmit();
    } else if (event.key === "ArrowUp" && !this.area.value && !this.busy) {
      event.preventDefault();
      this.callbacks.onEditLast();
    }
  }

  onInput() {
    fitHeight(this.area);
    this.send.disabled = !this.area.value.trim();
  }

  submit() {
    const text = this.area.value;
    if (this.busy || !text.trim()) return;
    if (!this.callbacks.onSend(text)) return;
    this.area.value = "";
    this.onInput();
  }

  /** While an answer is under way the button stops it, and sends nothing. */
  setBusy(busy) {
    const hadFocus = document.activeElement === this.stop || document.activeElement === this.send;
    this.busy = busy;
    this.send.hidden = busy;
    this.stop.hidden = !busy;
    if (hadFocus) this.focus();
    this.onInput();
  }

  /** On a phone this would raise the keyboard over the answer. */
  focus() {
    if (!matchMedia("(pointer: coarse)").matches) this.area.focus();
  }

  /** Shows a line above the box; `action` ({label, run}) is a button in it. It goes away by itself. */
  tell(text, action = null) {
    const [line, button] = this.notice.children;
    line.textContent = text;
    button.hidden = !action;
    button.textContent = action?.label ?? "";
    button.onclick = () => {
      this.notice.hidden = true;
      action.run();
      this.focus();
    };
    this.notice.hidden = false;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (this.notice.hidden = true), NOTICE_MS);
  }
}
