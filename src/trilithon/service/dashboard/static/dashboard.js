// Keeps a page live: after each round it is fetched again, and what differs is changed in place.
"use strict";

import { listenForActions, listenForExplanations, listenForLogOut } from "./actions.js";
import { morph } from "./morph.js";
import { createPlots } from "./plots.js";
import { followSliders } from "./what_if.js";

function listenForTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    const html = document.documentElement;
    const dark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    html.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("theme", html.dataset.theme);
    } catch {
      // Without storage the choice holds for this page.
    }
    document.dispatchEvent(new Event("theme"));
  });
}

class LivePage {
  constructor(plots) {
    this.plots = plots;
    this.current = null; // the refresh that is under way
    this.again = false;
    this.ended = false;
  }

  listen() {
    const stream = new EventSource("/api/v1/events?snapshots=true");
    this.stream = stream;
    stream.addEventListener("snapshot", () => this.refresh());
    stream.addEventListener("error", () => this.mark(true));
    stream.addEventListener("open", () => this.mark(false));
    document.addEventListener("refresh", () => this.refresh());
    document.addEventListener("visibilitychange", () => this.refresh());
    addEventListener("pagehide", () => stream.close());
  }

  mark(stale) {
    document.getElementById("live")?.toggleAttribute("data-stale", stale);
  }

  async stop() {
    this.ended = true;
    this.stream?.close();
    await this.current;
  }

  refresh() {
    if (document.hidden || this.ended) return;
    if (this.current) {
      this.again = true;
      return;
    }
    this.current = this.update().finally(() => {
      this.current = null;
      if (this.again) {
        this.again = false;
        this.refresh();
      }
    });
  }

  async update() {
    try {
      await Promise.all([this.fetchPage(), ...this.plots.map((plot) => plot.update())]);
    } catch {
      this.mark(true); // the stream comes back by itself
    }
  }

  async fetchPage() {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) {
      location.assign(answer.url);
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const began = performance.now();
    for (const id of ["main", "live"]) {
      const here = document.getElementById(id);
      const wanted = page.getElementById(id);
      if (here && wanted) morph(here, wanted);
    }
    document.body.dataset.morphMs = (performance.now() - began).toFixed(1);
    document.body.dataset.refreshed = String(Number(document.body.dataset.refreshed || 0) + 1);
  }
}

listenForTheme();
listenForActions();
listenForExplanations();
followSliders();
const plots = createPlots();
plots.forEach((plot) => plot.update());
const page = new LivePage(plots);
if ("live" in document.body.dataset) page.listen();
listenForLogOut(() => page.stop());
