// The list of conversations beside the page; on narrow screens a drawer over it.
import { titleOf } from "./conversation.js";
import { button, element } from "./dom.js";

const WIDE = matchMedia("(min-width: 60rem)");

export class Sidebar {
  /** `callbacks`: onOpen(id), onDelete(conversation). */
  constructor(nav, toggle, page, callbacks) {
    this.nav = nav;
    this.toggle = toggle;
    this.page = page;
    this.list = nav.querySelector("ul");
    this.callbacks = callbacks;
    toggle.addEventListener("click", () => this.setOpen(true));
    nav.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.drawer) this.setOpen(false);
    });
    document.addEventListener("click", (event) => {
      if (this.drawer && !nav.contains(event.target) && !toggle.contains(event.target)) this.setOpen(false);
    });
    WIDE.addEventListener("change", () => this.setOpen(false));
    this.setOpen(false);
  }

  /** Whether it lies over the page. */
  get drawer() {
    return this.isOpen && !WIDE.matches;
  }

  setOpen(open) {
    const moved = this.isOpen !== undefined && this.isOpen !== open && !WIDE.matches;
    this.isOpen = open;
    this.nav.classList.toggle("open", open);
    this.nav.inert = !open && !WIDE.matches;
    this.page.inert = this.drawer;
    this.toggle.ariaExpanded = String(open);
    document.body.classList.toggle("covered", this.drawer);
    if (moved) (open ? this.nav.querySelector("button") : this.toggle).focus();
  }

  show(conversations, openId) {
    const focused = this.buttons().indexOf(document.activeElement);
    this.list.replaceChildren(...conversations.map((conversation) => this.item(conversation, openId)));
    if (focused < 0) return;
    const rest = this.buttons(); // the focus stays at its place
    (rest[Math.min(focused, rest.length - 1)] ?? this.nav.querySelector("button")).focus();
  }

  buttons() {
    return [...this.list.querySelectorAll("button")];
  }

  item(conversation, openId) {
    const title = titleOf(conversation);
    const open = button(title, () => {
      this.setOpen(false);
      this.callbacks.onOpen(conversation.id);
    }, { className: "open", title });
    if (conversation.id === openId) open.ariaCurrent = "page";
    const remove = button("×", () => this.callbacks.onDelete(conversation), { className: "delete", "aria-label": `Delete “${title}”` });
    return element("li", {}, open, remove);
  }
}
