// What the browser keeps (localStorage): a key for each conversation, so that two windows do not overwrite each other's,
// one for the settings, one for the conversation that is open.

const PREFIX = "lily.conversation.";
const SETTINGS = "lily.settings";
const OPEN = "lily.open";

/** All conversations, the latest first. */
export function listConversations() {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  return keys.map((key) => read(key)).filter(isConversation).sort((a, b) => b.updated - a.updated);
}

/** Null if there is none of that id. An answer that was under way when the page went away counts as stopped. */
export function loadConversation(id) {
  const conversation = read(PREFIX + id);
  if (!isConversation(conversation)) return null;
  for (const message of conversation.messages) if (message.state === "running") message.state = "stopped";
  return conversation;
}

/** False if the browser has no room for it. */
export function saveConversation(conversation) {
  return write(PREFIX + conversation.id, conversation);
}

export function deleteConversation(id) {
  localStorage.removeItem(PREFIX + id);
}

export function loadOpenId() {
  return read(OPEN);
}

export function saveOpenId(id) {
  write(OPEN, id);
}

export function loadSettings() {
  return read(SETTINGS) ?? {};
}

export function saveSettings(settings) {
  return write(SETTINGS, settings);
}

/** Calls back when another window has changed the conversations. */
export function onForeignChange(callback) {
  addEventListener("storage", (event) => {
    if (event.key === null || event.key.startsWith(PREFIX)) callback();
  });
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null; // not ours, or cut off
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false; // QuotaExceededError, or storage switched off
  }
}

function isConversation(value) {
  return typeof value?.id === "string" && Array.isArray(value.messages);
}
