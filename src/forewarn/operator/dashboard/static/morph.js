// Changes a part of the page into its newest version, node by node: focus, selection, open details and scroll positions
// stay, and a dialog that the user has open keeps its form. A script or the user owns an element with data-keep.

import { setNow, showTimes } from "./times.js";

const callbacks = {
  beforeNodeMorphed: (node) => !(node instanceof HTMLDialogElement && node.open) && node.dataset?.keep === undefined,
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
      const contents = [...fragment.children];
      if (contents.length === 0) {
        target.remove();
        return true;
      }
      if (contents[0].dataset.now) {
        setNow(contents[0].dataset.now);
      }
      showTimes(fragment);
      // Elements after the first one are inserted after the target.
      return Idiomorph.morph(target, contents, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
    },
  });
}
