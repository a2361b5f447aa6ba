// Changes a part of the page into its newest version, node by node: focus, selection, open details and scroll positions
// stay, and a dialog that the user has open keeps its form.

import { setNow, showTimes } from "./times.js";

const callbacks = {
  beforeNodeMorphed: (node) => !(node instanceof HTMLDialogElement && node.open),
  beforeNodeRemoved: (node) => !(node instanceof HTMLDialogElement && node.open),
  beforeAttributeUpdated: (name, node) => !(name === "open" && node instanceof HTMLDetailsElement),
};

export function enableMorph() {
  htmx.defineExtension("morph", {
    isInlineSwap: (style) => style === "morph",
    handleSwap(style, target, fragment) {
      if (style !== "morph") {
        return false;
      }
      const [content] = fragment.children;
      if (content === undefined) {
        target.remove();
        return true;
      }
      if (content.dataset.now) {
        setNow(content.dataset.now);
      }
      showTimes(fragment);
      return Idiomorph.morph(target, content, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
    },
  });
}
