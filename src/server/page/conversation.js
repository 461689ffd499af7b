// A conversation: plain data as it is stored, and what can be done to it.
//
// {id, updated, messages}, where a message is
//   {role: "user", content}
//   {role: "assistant", content, reasoning, calls, state, finish, error, stats}
// with calls [{id, name, arguments, result}] (result: what the reader filled in, absent before), state one of running, done,
// stopped, failed, and stats as answer.js measures them.

export function createConversation() {
  return { id: randomId(), updated: Date.now(), messages: [] };
}

export function userMessage(content) {
  return { role: "user", content };
}

export function assistantMessage() {
  return { role: "assistant", content: "", reasoning: "", calls: [], state: "running", finish: null, error: null, stats: {} };
}

/** Its first words; conversations have no other name. */
export function titleOf(conversation) {
  const first = conversation.messages.find((message) => message.role === "user");
  const line = first?.content.trim().split("\n", 1)[0] ?? "";
  return line.length > 80 ? `${line.slice(0, 79).trimEnd()}…` : line || "New conversation";
}

/** Drops the message at `index` and everything after it. */
export function truncate(conversation, index) {
  conversation.messages.length = Math.min(index, conversation.messages.length);
}

/** The tokens in the context after the last answer that was counted; null if there is none. */
export function contextUsed(conversation) {
  const counted = conversation.messages.findLast((message) => message.stats?.contextTokens);
  return counted?.stats.contextTokens ?? null;
}

/** `messages` of a request. A call's result follows it as a message of role "tool". */
export function requestMessages(conversation, system) {
  const out = system ? [{ role: "system", content: system }] : [];
  for (const message of conversation.messages) {
    if (message.role === "user") out.push({ role: "user", content: message.content });
    else if (message.state !== "failed") out.push(...answerMessages(message));
  }
  return out;
}

function answerMessages(message) {
  const answer = { role: "assistant", content: message.content };
  if (message.reasoning) answer.reasoning_content = message.reasoning;
  if (!message.calls.length) return [answer];
  answer.tool_calls = message.calls.map((call) => ({
    id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
  }));
  const results = message.calls.filter((call) => call.result !== undefined);
  return [answer, ...results.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result }))];
}

// crypto.randomUUID is missing where the page is served over plain HTTP to another machine.
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
