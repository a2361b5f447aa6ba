// Shared by all tabs of a browser: one connection to the service for all of them.

import { StreamSource } from "./stream-source.js";

const tabs = new Set();
let session = null;
let source = null;

function publish(message) {
  for (const tab of tabs) {
    tab.postMessage(message);
  }
}

function join(tab, message) {
  tabs.add(tab);
  if (source === null || session !== message.session) {
    source?.close();
    session = message.session;
    source = new StreamSource(message.url, publish);
  } else {
    tab.postMessage(source.state);
  }
}

function leave(tab) {
  tabs.delete(tab);
  if (tabs.size === 0) {
    source?.close();
    source = null;
  }
}

self.addEventListener("connect", (event) => {
  const [tab] = event.ports;
  tab.addEventListener("message", ({ data }) => (data.kind === "join" ? join(tab, data) : leave(tab)));
  tab.start();
});
