// An answer: its thinking (folded), content, tool calls, and a line about how it went.
import { CallView } from "./call_view.js";
import { button, element } from "./dom.js";
import { MarkdownView, copyButton } from "./markdown.js";

export class AnswerView {
  /**
   * `onRegenerate()` wants this answer again, `onResults()` the next one, after the calls' results were filled in; `say` tells a
   * screen reader what is new.
   */
  constructor(message, { name, onRegenerate, onResults, say }) {
    this.message = message;
    this.onResults = onResults;
    this.calls = [];
    this.buildThinking();
    this.content = element("div", { className: "content" });
    this.markdown = new MarkdownView(this.content, message.state === "running" ? say : () => {});
    this.callList = element("div", { className: "calls" });
    this.error = element("p", { className: "error", role: "alert", hidden: true });
    this.status = element("span", { className: "status" });
    this.again = button("Regenerate", onRegenerate);
    this.copy = copyButton(() => message.content);
    this.actions = element("div", { className: "actions" }, this.again, this.copy, this.status);
    this.element = element("li", { className: "message answer" }, element("h2", { textContent: name.split("-")[0], title: name }),
      element("div", { className: "body" }, this.thinking, this.content, this.callList, this.error, this.actions));
    this.update();
  }

  buildThinking() {
    this.thinkingLabel = element("span");
    this.thinkingTail = element("span");
    this.thinkingText = element("div", { className: "thoughts" });
    this.thinking = element("details", { className: "thinking", hidden: true },
      element("summary", {}, this.thinkingLabel, element("span", { className: "tail", "aria-hidden": "true" }, this.thinkingTail)),
      this.thinkingText);
  }

  setBusy(busy) {
    this.again.disabled = busy;
    for (const call of this.calls) call.setBusy(busy);
  }

  /** Shows the message as it is now. */
  update() {
    const { message } = this;
    const running = message.state === "running";
    this.element.dataset.state = message.state;
    this.element.ariaBusy = String(running);
    this.updateThinking(running);
    if (running) this.markdown.update(message.content);
    else this.markdown.finish(message.content);
    this.updateCalls();
    this.error.hidden = !message.error;
    this.error.textContent = message.error ?? "";
    this.again.hidden = running;
    this.copy.disabled = !message.content;
    this.again.textContent = message.state === "failed" ? "Try again" : "Regenerate";
    this.status.textContent = statusOf(message);
  }

  updateThinking(running) {
    const { reasoning, content, calls, stats } = this.message;
    this.thinking.hidden = !reasoning;
    if (!reasoning) return;
    const live = running && !content && !calls.length;
    const seconds = stats.thinkingMs >= 1000 ? ` ${live ? "·" : "for"} ${Math.round(stats.thinkingMs / 1000)} s` : "";
    this.thinkingLabel.textContent = `${live ? "Thinking" : "Thought"}${seconds}`;
    this.thinkingTail.textContent = live ? reasoning.slice(-160).replace(/\s+/g, " ") : "";
    this.thinkingText.textContent = reasoning.trim();
  }

  updateCalls() {
    const { calls, state } = this.message;
    for (const call of calls.slice(this.calls.length)) {
      this.calls.push(new CallView(call, () => this.onResults()));
      this.callList.append(this.calls.at(-1).element);
    }
    for (const view of this.calls) view.update(state !== "running");
  }
}

const ENDINGS = { stopped: "stopped", length: "cut off by the token limit", failed: "broken off" };

function statusOf({ state, finish, stats, reasoning, content, calls }) {
  const parts = [];
  if (state === "running" && !reasoning && !content && !calls.length) {
    parts.push(stats.progress ? `reading the prompt, ${group(stats.progress.done)} of ${group(stats.progress.total)} tokens` : "waiting");
  }
  const ending = ENDINGS[state] ?? ENDINGS[finish];
  if (ending) parts.push(ending);
  if (stats.exact) parts.push(`${group(stats.completionTokens)} tokens`);
  if (stats.tokensPerSecond) parts.push(`${stats.exact ? "" : "about "}${rate(stats.tokensPerSecond)} tok/s`);
  if (state !== "running" && stats.firstTokenMs >= 100) parts.push(`first after ${(stats.firstTokenMs / 1000).toFixed(1)} s`);
  if (stats.cachedTokens) parts.push(`${group(stats.cachedTokens)} from the cache`);
  return parts.join(" · ");
}

function rate(value) {
  return value < 10 ? value.toFixed(1) : group(Math.round(value));
}

/** 8192 as 8,192. */
export function group(number) {
  return number.toLocaleString("en");
}
