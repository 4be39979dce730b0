// The stream of events, read by fetch: only so can a token go in a header. It is in no cookie, no URL and no storage.

const MOST_UNREAD = 4 << 20; // characters of one event: the server sends none above half a million or so
const SILENT_MS = 40000; // the server says something every 15 s
const PAUSES_MS = [500, 1000, 2000, 5000, 10000, 20000];

/** What ended a stream for good: the reader may not. */
export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export class Feed {
  /** `told` gets each message, `lost` what is wrong, `refused` why nobody tells us anything. */
  constructor({ told, open, lost, refused }) {
    this.told = told;
    this.open = open;
    this.lost = lost;
    this.refused = refused;
    this.token = "";
    this.namespaces = "";
    this.run = 0;
    this.stop = new AbortController();
  }

  /** Begins again, with this token. */
  start(token, namespaces) {
    this.token = token;
    this.namespaces = namespaces;
    this.stop.abort();
    this.follow(++this.run);
  }

  async follow(run) {
    let failures = 0;
    while (run === this.run) {
      this.stop = new AbortController();
      try {
        await this.read(() => {
          failures = 0;
          this.open();
        });
        this.lost("the server has ended the stream");
      } catch (error) {
        if (run !== this.run) return;
        if (error instanceof Refused && [401, 403].includes(error.status)) {
          this.refused(error);
          return;
        }
        this.lost(error instanceof Refused ? error.message : "the server does not answer");
      }
      const pause = PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pause * (0.7 + 0.6 * Math.random())));
    }
  }

  async read(opened) {
    const headers = { "Closeknit-Map": "1", Accept: "text/event-stream" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (this.namespaces) headers["Closeknit-Namespaces"] = this.namespaces;
    const stop = this.stop;
    let watch = setTimeout(() => stop.abort(), SILENT_MS);
    try {
      const reply = await fetch("stream", { headers, signal: stop.signal, cache: "no-store", credentials: "omit" });
      if (!reply.ok) throw new Refused(reply.status, (await reply.text()).slice(0, 400) || `status ${reply.status}`);
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let unread = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(watch);
        watch = setTimeout(() => stop.abort(), SILENT_MS);
        unread += value;
        let end;
        while ((end = unread.indexOf("\n\n")) >= 0) {
          const event = unread.slice(0, end);
          unread = unread.slice(end + 2);
          this.take(event, opened);
        }
        if (unread.length > MOST_UNREAD) throw new Error("an event without an end");
      }
    } finally {
      clearTimeout(watch);
      stop.abort();
    }
  }

  take(event, opened) {
    let name = "message";
    let data = "";
    for (const line of event.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    const message = JSON.parse(data);
    if (name === "end") throw new Refused(message.status, "this token is no longer good");
    opened();
    this.told(message);
  }
}
