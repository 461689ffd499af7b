// The page: one conversation is open; its parts are wired together here.
import { Announcer } from "./announcer.js";
import { Answer } from "./answer.js";
import { group } from "./answer_view.js";
import { fetchModel } from "./completion.js";
import { Composer } from "./composer.js";
import { assistantMessage, contextUsed, createConversation, requestMessages, titleOf, truncate, userMessage } from "./conversation.js";
import { Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import * as store from "./store.js";
import { Thread } from "./thread.js";

const SAVE_MS = 1000; // how often an answer under way is kept, in case the page goes away

const at = (id) => document.getElementById(id);

class App {
  constructor() {
    this.model = null; // {id, max_model_len}, once the server has said
    this.answer = null; // the one under way
    this.deleted = new Set(); // ids: an answer that is being stopped must not bring its conversation back
    this.announcer = new Announcer(at("live"));
    this.settings = new Settings(at("settings"), at("thinking"), store.loadSettings(), (values) => store.saveSettings(values));
    this.composer = new Composer(at("composer"), {
      onSend: (text) => this.send(text), onStop: () => this.stop(), onEditLast: () => this.thread.editLast(),
    });
    this.thread = new Thread(at("messages"), at("to-end"), {
      name: () => this.model?.id ?? "lily",
      say: (text) => this.announcer.say(text),
      onEdit: (index, text) => this.edit(index, text),
      onRegenerate: (index) => this.regenerate(index),
      onResults: (index) => this.takeResults(index),
    });
    this.sidebar = new Sidebar(at("sidebar"), at("toggle-sidebar"), at("page"), {
      onOpen: (id) => id !== this.conversation.id && this.open(store.loadConversation(id)),
      onDelete: (conversation) => this.remove(conversation),
    });
    this.listen();
  }

  listen() {
    at("new-conversation").addEventListener("click", () => {
      this.sidebar.setOpen(false);
      this.open(createConversation());
    });
    at("open-settings").addEventListener("click", () => this.settings.open());
    at("settings").addEventListener("close", () => this.meetModel());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !at("settings").open && !this.sidebar.drawer) this.stop();
    });
    addEventListener("pagehide", () => this.leave());
    store.onForeignChange(() => this.showList());
  }

  async start() {
    await this.meetModel();
    this.open(store.loadConversation(store.loadOpenId()) ?? createConversation());
  }

  async meetModel() {
    if (this.model) return;
    try {
      this.model = await fetchModel(this.settings.values.key);
      at("welcome").querySelector(".hello").textContent = this.model.id;
      at("welcome").querySelector(".about").textContent =
        `is loaded and has room for ${group(this.model.max_model_len)} tokens. What you write goes to this server and is kept in this browser, nowhere else.`;
    } catch (error) {
      if (error.status === 401) this.askForKey();
      else this.composer.tell(error.message);
    }
  }

  open(conversation) {
    if (!conversation) return;
    this.stop();
    this.conversation = conversation;
    store.saveOpenId(conversation.id);
    this.show();
    this.thread.scrollToEnd();
    this.composer.focus();
  }

  /** Draws everything but a message that changes while it is answered. */
  show() {
    const { messages } = this.conversation;
    const title = titleOf(this.conversation);
    at("title").textContent = title;
    document.title = messages.length ? `${title} · lily` : "lily";
    at("welcome").hidden = messages.length > 0;
    this.thread.show(messages);
    this.showContext();
    this.showList();
  }

  showList() {
    this.sidebar.show(store.listConversations(), this.conversation?.id);
  }

  showContext() {
    const used = contextUsed(this.conversation);
    const room = this.model?.max_model_len;
    at("context").hidden = !used || !room;
    if (!used || !room) return;
    at("context").firstElementChild.textContent = `${group(used)} / ${group(room)}`;
    at("context").style.setProperty("--used", Math.min(1, used / room));
  }

  save() {
    this.conversation.updated = Date.now();
    if (!store.saveConversation(this.conversation)) this.composer.tell("This browser has no room to keep the conversation. Delete old ones.");
  }

  /** Whether an answer can be asked for; says why not. */
  ready() {
    const problem = this.settings.problem();
    if (problem) this.composer.tell(problem, { label: "Settings", run: () => this.settings.open() });
    return !problem && !this.answer;
  }

  /** False if the text was not taken. */
  send(text) {
    if (!this.ready()) return false;
    this.conversation.messages.push(userMessage(text));
    this.respond();
    return true;
  }

  edit(index, text) {
    if (!this.ready()) return;
    truncate(this.conversation, index);
    this.send(text);
  }

  regenerate(index) {
    if (!this.ready()) return;
    truncate(this.conversation, index);
    this.respond();
  }

  /** Goes on once every call of the message at `index` has its result. */
  takeResults(index) {
    const { calls } = this.conversation.messages[index];
    this.thread.views[index].update();
    this.save();
    if (calls.some((call) => call.result === undefined) || !this.ready()) return;
    truncate(this.conversation, index + 1);
    this.respond();
  }

  stop() {
    this.answer?.stop();
  }

  /** Asks for the answer to the conversation as it stands. */
  async respond() {
    const { conversation } = this;
    const { system, key } = this.settings.values;
    const request = { messages: requestMessages(conversation, system), ...this.settings.requestFields() };
    const message = assistantMessage();
    conversation.messages.push(message);
    const answer = new Answer(message, request, key, () => this.changed(conversation));
    this.answer = answer;
    this.save();
    this.show();
    this.setBusy(true);
    this.thread.scrollToEnd();
    this.composer.focus();
    this.announcer.say("Answering.");
    const status = await answer.run();
    this.answer = null;
    this.finish(conversation, message, status);
  }

  changed(conversation) {
    if (conversation !== this.conversation) return; // another one was opened; the answer is being stopped
    this.thread.changed();
    if (Date.now() - conversation.updated > SAVE_MS) this.save();
  }

  finish(conversation, message, status) {
    conversation.updated = Date.now();
    if (!this.deleted.has(conversation.id)) store.saveConversation(conversation);
    this.setBusy(false);
    if (conversation !== this.conversation) return this.showList();
    this.thread.drawLast();
    this.showContext();
    this.showList();
    if (status === 401) this.askForKey();
    if (message.state !== "failed") this.announcer.say(message.state === "stopped" ? "Stopped." : "The answer is complete.");
  }

  // Nobody reads on. The browser might keep the page, and the answer going, for the way back.
  leave() {
    if (!this.answer) return;
    this.save();
    this.stop();
  }

  askForKey() {
    this.composer.tell("The server asks for an API key.", { label: "Enter it", run: () => this.settings.open() });
  }

  setBusy(busy) {
    this.composer.setBusy(busy);
    this.thread.setBusy(busy);
  }

  remove(conversation) {
    this.deleted.add(conversation.id);
    store.deleteConversation(conversation.id);
    if (conversation.id === this.conversation.id) this.open(createConversation());
    else this.showList();
    this.composer.tell("The conversation is deleted.", {
      label: "Undo",
      run: () => {
        this.deleted.delete(conversation.id);
        store.saveConversation(conversation);
        this.open(store.loadConversation(conversation.id));
      },
    });
  }
}

new App().start();
