// One streamed chat completion: the request, and the events that come back.

/** What the server or the network said instead of an answer; `status` is 0 for the network. */
export class CompletionError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/**
 * Yields, in the order of the stream, {progress: {done, total}} while the prompt is read, then {delta} with OpenAI's
 * fields, {finish} with the reason and {usage}. Throws CompletionError, or AbortError once `signal` says so.
 */
export async function* complete(request, { key, signal }) {
  const response = await post(request, key, signal);
  let done = false;
  for await (const line of lines(response.body)) {
    const event = parse(line);
    if (event === "done") done = true;
    else if (event) yield* unpack(event);
  }
  if (!done) throw new CompletionError("The connection broke off before the answer was complete.");
}

/** The one model of the server: {id, max_model_len}. */
export async function fetchModel(key) {
  const response = await send("v1/models", { headers: headers(key) });
  return (await response.json()).data[0];
}

function post(request, key, signal) {
  const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  return send("v1/chat/completions", {
    method: "POST", headers: { ...headers(key), "Content-Type": "application/json" }, body, signal,
  });
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new CompletionError("The server does not answer. Is lily serve still running?");
  }
  if (!response.ok) throw new CompletionError(await errorMessage(response), response.status);
  return response;
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function errorMessage(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status} ${response.statusText}.`;
  }
}

async function* lines(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of chunks(body)) {
    const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

// Safari cannot iterate over a body.
async function* chunks(body) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new CompletionError("The connection broke off before the answer was complete.");
  } finally {
    reader.releaseLock();
  }
}

function parse(line) {
  const progress = /^: keepalive (\d+)\/(\d+)/.exec(line);
  if (progress) return { progress: { done: Number(progress[1]), total: Number(progress[2]) } };
  if (!line.startsWith("data: ")) return null;
  const data = line.slice("data: ".length);
  return data === "[DONE]" ? "done" : JSON.parse(data);
}

function* unpack(event) {
  if (event.progress) yield event;
  if (event.error) throw new CompletionError(event.error.message, 500);
  const choice = event.choices?.[0];
  if (choice?.delta) yield { delta: choice.delta };
  if (choice?.finish_reason) yield { finish: choice.finish_reason };
  if (event.usage) yield { usage: event.usage };
}
