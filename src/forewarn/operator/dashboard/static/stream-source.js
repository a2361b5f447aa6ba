// The connection to the event stream of the service. It reconnects, resumes after the last entry, and notices silence.

const SILENCE = 45_000; // the service sends something every 15 seconds
const LONGEST_WAIT = 30_000;

export class StreamSource {
  // `listener` gets { kind: "state", live, since, position }, { kind: "entry", entry }, and { kind: "ended" } when the
  // session has ended.
  constructor(url, listener) {
    this.url = url;
    this.listener = listener;
    this.position = null;
    this.failures = 0;
    this.closes = 0;
    this.state = { kind: "state", live: false, since: Date.now(), position: null };
    this.open();
  }

  open() {
    this.source = new EventSource(this.position === null ? this.url : `${this.url}?after=${this.position}`);
    this.source.addEventListener("beat", (event) => this.receive(event, null));
    this.source.addEventListener("message", (event) => this.receive(event, JSON.parse(event.data)));
    this.source.addEventListener("error", () => this.fail());
    this.watch();
  }

  close() {
    this.closes += 1;
    clearTimeout(this.timer);
    this.source.close();
  }

  // Continue after `close`.
  reopen() {
    this.close();
    this.open();
  }

  receive(event, entry) {
    this.watch();
    this.failures = 0;
    this.position = Number(event.lastEventId);
    this.state.position = this.position;
    if (!this.state.live) {
      this.setLive(true);
    }
    if (entry !== null) {
      this.listener({ kind: "entry", entry });
    }
  }

  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.retry(), SILENCE);
  }

  setLive(live) {
    this.state = { kind: "state", live, since: Date.now(), position: this.position };
    this.listener(this.state);
  }

  fail() {
    if (this.state.live) {
      this.setLive(false);
    } else {
      this.listener(this.state); // a page that was never live does not know since when it is stale
    }
    if (this.source.readyState === EventSource.CLOSED) {
      this.examine();
    }
  }

  // The browser does not tell why it gave up, so ask again.
  async examine() {
    this.close();
    const { closes } = this;
    const cancel = new AbortController();
    try {
      const url = this.position === null ? this.url : `${this.url}?after=${this.position}`;
      const headers = { accept: "text/event-stream", "forewarn-background": "1" };
      const { status } = await fetch(url, { headers, signal: cancel.signal });
      if (status === 401 && closes === this.closes) {
        this.listener({ kind: "ended" });
        return;
      }
      if (status === 404 || status === 410) {
        this.position = null; // other data, or the entries are gone: pages have to be read again
      }
    } catch {
      // The service cannot be reached.
    } finally {
      cancel.abort();
    }
    if (closes !== this.closes) {
      return; // it was closed or opened again meanwhile
    }
    this.failures += 1;
    this.timer = setTimeout(() => this.open(), Math.min(1000 * 2 ** (this.failures - 1), LONGEST_WAIT));
  }

  retry() {
    if (this.state.live) {
      this.setLive(false);
    }
    this.reopen();
  }
}
