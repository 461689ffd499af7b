// The messages on the page, in order, and the scrolling that follows them.
import { AnswerView } from "./answer_view.js";
import { UserView } from "./user_view.js";

const NEAR_END = 80; // pixels

export class Thread {
  /** `callbacks`: onEdit(index, text), onRegenerate(index), onResults(index), say(text), name(). */
  constructor(list, toEnd, callbacks) {
    this.list = list;
    this.toEnd = toEnd;
    this.callbacks = callbacks;
    this.views = [];
    this.following = true;
    addEventListener("scroll", () => this.onScroll(), { passive: true });
    toEnd.addEventListener("click", () => this.scrollToEnd());
    new ResizeObserver(() => this.follow()).observe(list);
  }

  /** Shows these messages; those that are shown already keep their elements. */
  show(messages) {
    let same = 0;
    while (same < this.views.length && this.views[same].message === messages[same]) same += 1;
    for (const view of this.views.splice(same)) view.element.remove();
    for (const message of messages.slice(same)) this.append(message);
  }

  append(message) {
    const { callbacks } = this;
    const index = this.views.length;
    const view = message.role === "user"
      ? new UserView(message, { onEdit: (text) => callbacks.onEdit(index, text) })
      : new AnswerView(message, {
          name: callbacks.name(), say: callbacks.say,
          onRegenerate: () => callbacks.onRegenerate(index), onResults: () => callbacks.onResults(index),
        });
    this.views.push(view);
    this.list.append(view.element);
  }

  /** The last message has changed; drawn with the next frame, however many changes come before it. */
  changed() {
    this.frame ??= requestAnimationFrame(() => this.drawLast());
  }

  drawLast() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    this.views.at(-1)?.update();
  }

  setBusy(busy) {
    for (const view of this.views) view.setBusy(busy);
  }

  /** Opens the editor of the last message that the reader wrote. */
  editLast() {
    this.views.findLast((view) => view instanceof UserView)?.open();
  }

  onScroll() {
    const root = document.documentElement;
    this.following = root.scrollHeight - root.clientHeight - root.scrollTop < NEAR_END;
    this.toEnd.hidden = this.following;
  }

  // A reader who has scrolled up is left where they are.
  follow() {
    if (this.following) this.scrollToEnd();
    else this.onScroll();
  }

  scrollToEnd() {
    this.following = true;
    this.toEnd.hidden = true;
    document.documentElement.scrollTop = document.documentElement.scrollHeight;
  }
}
