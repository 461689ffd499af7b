// An answer under way: runs a completion, puts what arrives into the assistant's message, measures it.
import { complete } from "./completion.js";

export class Answer {
  /** `message` (conversation.js) is filled in; `onChange` is called after each arrival. */
  constructor(message, request, key, onChange) {
    this.message = message;
    this.request = request;
    this.key = key;
    this.onChange = onChange;
    this.abort = new AbortController();
    this.pieces = 0;
  }

  stop() {
    this.abort.abort();
  }

  /** Resolves when the message is done, stopped or failed. Returns the HTTP status of a failure, else null. */
  async run() {
    this.started = performance.now();
    try {
      for await (const event of complete(this.request, { key: this.key, signal: this.abort.signal })) {
        this.take(event);
        this.onChange();
      }
      this.message.state = "done";
      return null;
    } catch (error) {
      this.message.state = this.abort.signal.aborted ? "stopped" : "failed";
      if (this.message.state === "stopped") return null;
      this.message.error = error.message;
      return error.status ?? 0;
    } finally {
      delete this.message.stats.progress;
      this.onChange();
    }
  }

  take({ progress, delta, finish, usage }) {
    const { message } = this;
    if (progress) message.stats.progress = progress;
    if (delta) this.takeDelta(delta);
    if (finish) message.finish = finish;
    if (usage) this.takeUsage(usage);
  }

  takeDelta(delta) {
    const { message } = this;
    if (delta.reasoning_content) message.reasoning += delta.reasoning_content;
    if (delta.content) message.content += delta.content;
    for (const part of delta.tool_calls ?? []) takeCall(message.calls, part);
    if (delta.reasoning_content || delta.content || delta.tool_calls) this.measure(delta);
  }

  // A piece is about a token; the exact rate comes with `usage`.
  measure(delta) {
    const { stats } = this.message;
    const now = performance.now();
    this.first ??= now;
    this.last = now;
    this.pieces += 1;
    stats.firstTokenMs = this.first - this.started;
    if (delta.reasoning_content) stats.thinkingMs = now - this.first;
    if (now - this.first > 500) stats.tokensPerSecond = rate(this.pieces, now - this.first);
    stats.exact = false;
  }

  takeUsage(usage) {
    const { stats } = this.message;
    stats.promptTokens = usage.prompt_tokens;
    stats.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0;
    stats.completionTokens = usage.completion_tokens;
    stats.contextTokens = usage.total_tokens;
    stats.tokensPerSecond = rate(usage.completion_tokens, this.last - this.first);
    stats.exact = true;
  }
}

// The first token ends the time before it.
function rate(tokens, milliseconds) {
  return tokens > 1 && milliseconds > 0 ? ((tokens - 1) * 1000) / milliseconds : null;
}

// The first part of a call carries id and name, each part a piece of the arguments.
function takeCall(calls, part) {
  calls[part.index] ??= { id: "", name: "", arguments: "" };
  const call = calls[part.index];
  call.id += part.id ?? "";
  call.name += part.function?.name ?? "";
  call.arguments += part.function?.arguments ?? "";
}
