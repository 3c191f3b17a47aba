// Changes a job, after a confirmation, by the same API that the command line uses.
"use strict";

const QUESTIONS = {
  pause: { title: "Pause", text: "It stops and keeps its checkpoint; its slots become free.", button: "Pause", danger: true },
  resume: { title: "Resume", text: "It starts again from its checkpoint.", button: "Resume" },
  advise: { title: "Advise only", text: "The controller explains what it would do, and does not do it.", button: "Advise only" },
  auto: { title: "Let the controller act", text: "It may change parallelism and placement within the job's bounds.", button: "Let it act" },
  priority: { title: "Change the priority", text: "It is the job's maximum utility: others may lose slots to it. Nothing is stopped.", button: "Change", asks: "Priority" },
};

function request(job, action, value) {
  const token = document.querySelector("meta[name=csrf-token]")?.content || "";
  const headers = { "X-CSRF-Token": token, "Content-Type": "application/json" };
  if (action === "priority") {
    const body = JSON.stringify({ priority: Number(value) });
    return fetch(`/api/v1/jobs/${job}/priority`, { method: "PUT", headers, body });
  }
  if (action === "advise" || action === "auto") {
    return fetch(`/api/v1/jobs/${job}/mode`, { method: "PUT", headers, body: JSON.stringify({ mode: action }) });
  }
  return fetch(`/api/v1/jobs/${job}/${action}`, { method: "POST", headers });
}

export function say(text) {
  const toast = document.createElement("div");
  toast.className = "toast";
  toast.setAttribute("role", "status");
  toast.textContent = text;
  document.body.append(toast);
  setTimeout(() => toast.remove(), 4000);
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function openDialog(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.showModal();
}

function ask(job, action, now) {
  const { title, text, button, danger, asks } = QUESTIONS[action];
  const form = element("form", { method: "dialog" });
  form.append(element("h1", { id: "question" }, `${title}: ${job}`), element("p", {}, text));
  if (asks) {
    const input = element("input", { id: "answer", type: "number", min: "0.1", step: "any", required: "", value: now });
    form.append(element("label", { for: "answer" }, `${asks} `), input);
  }
  const buttons = element("p", { class: "buttons" });
  const cancel = element("button", { type: "button" }, "Cancel");
  cancel.addEventListener("click", () => dialog.close());
  buttons.append(cancel, element("button", { type: "submit", class: danger ? "danger" : "primary" }, button));
  form.append(buttons);
  const dialog = element("dialog", { "aria-labelledby": "question" }, form);
  form.addEventListener("submit", async () => {
    const answer = await request(job, action, form.querySelector("#answer")?.value);
    const problem = await answer.json().catch(() => ({}));
    say(answer.ok ? `${title}: accepted.` : problem.detail || problem.title || `Refused (${answer.status}).`);
    document.dispatchEvent(new Event("refresh"));
  });
  openDialog(dialog);
}

export function listenForActions() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button) ask(button.closest("[data-job]").dataset.job, button.dataset.action, button.dataset.value);
  });
}

// `stop` ends what would otherwise ask for pages of a session that is over.
export function listenForLogOut(stop) {
  document.getElementById("log-out")?.addEventListener("click", async () => {
    await stop();
    const token = document.querySelector("meta[name=csrf-token]").content;
    const root = document.querySelector(".brand").getAttribute("href");
    await fetch(`${root}/logout`, { method: "POST", headers: { "X-CSRF-Token": token } });
    location.assign(`${root}/login`);
  });
}

// A decision opens in a dialog; without scripts its link leads to a page.
export function listenForExplanations() {
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a.explain");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    const answer = await fetch(link.href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const close = element("button", { type: "button", autofocus: "" }, "Close");
    const body = page.getElementById("decision") || element("p", {}, "The decision is no longer in the journal.");
    const dialog = element("dialog", { "aria-label": "Explanation of a decision" }, document.importNode(body, true), element("p", { class: "buttons" }, close));
    close.addEventListener("click", () => dialog.close());
    document.querySelector("dialog[open]")?.close();
    openDialog(dialog);
  });
}
