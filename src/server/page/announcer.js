// What a screen reader is told: sentences about the state, and an answer block by block as it is completed, rather
// than the flicker of a text that grows.

const KEPT = 8;

export class Announcer {
  constructor(element) {
    this.element = element;
  }

  say(text) {
    this.element.append(Object.assign(document.createElement("p"), { textContent: text }));
    while (this.element.childElementCount > KEPT) this.element.firstElementChild.remove();
  }
}
