// Adds to the pages: uploads with progress, updates of live pages, previews while typing, copying. All else works without it.
"use strict";

const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

/** Returns an element with a class and a text. */
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/** Returns a length with a unit. */
function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

/** Length of a file in bytes above which the script asks whether its key exists before it sends it: a browser may not show a refusal during an upload. */
const ASK_FIRST_BYTES = 16 << 20;

/** Returns whether there is an object with a key that the user may read. */
async function exists(bucket, key) {
  const response = await fetch(`/object?${new URLSearchParams({ bucket, key })}`);
  return response.ok;
}

/** Sends one file, and shows its progress in a row of the list. Returns whether it was stored. */
async function upload(file, key, bucket, replaces, list) {
  const row = list.appendChild(element("li"));
  row.append(element("bdi", "", key));
  const progress = row.appendChild(element("progress"));
  progress.max = Math.max(file.size, 1);
  progress.value = 0;
  progress.setAttribute("aria-label", `Progress of ${key}`);
  const result = row.appendChild(element("span", "result", "waiting"));
  const query = new URLSearchParams({ bucket, key, replace: String(replaces) });
  if (!replaces && file.size > ASK_FIRST_BYTES && (await exists(bucket, key))) {
    result.textContent = "An object of this name exists. Choose “Replace existing objects” to replace it.";
    result.classList.add("failure");
    return false;
  }
  return new Promise((resolve) => {
    const end = (isStored, text) => {
      progress.value = isStored ? progress.max : progress.value;
      result.textContent = text;
      result.classList.add(isStored ? "good" : "failure");
      resolve(isStored);
    };
    const request = new XMLHttpRequest();
    request.open("POST", `/upload?${query}`);
    request.setRequestHeader("X-Csrf-Token", csrf);
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    request.upload.onprogress = (event) => {
      progress.value = event.loaded;
      result.textContent = `${bytesText(event.loaded)} of ${bytesText(file.size)}`;
    };
    request.onload = () => {
      if (request.status === 200) end(true, "stored");
      else end(false, request.responseText.startsWith("<") ? `failed (${request.status})` : request.responseText);
    };
    request.onerror = () => end(false, "The connection ended before the response. Load the page again to see whether the file was stored.");
    request.send(file);
  });
}

/** Returns the files of a drop, with the paths of those in dropped directories. */
async function droppedFiles(items) {
  const files = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      files.push({ file, path: entry.fullPath.replace(/^\//, "") });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const one of some) await walk(one);
    }
  };
  // The entries are only available before the first await.
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  for (const entry of entries) await walk(entry);
  return files;
}

/** Makes the form, and a drop on its area, upload files one after another. */
function prepareUploads(form) {
  const list = document.getElementById("uploads");
  const input = form.querySelector('input[type="file"]');
  const button = form.querySelector("button");
  const prefix = decodeURIComponent(form.dataset.prefix);
  const send = async (files) => {
    const replaces = document.getElementById("replace").checked;
    button.disabled = true;
    let stored = 0;
    // One after another: the network is the limit, and the order is clear.
    for (const { file, path } of files) {
      if (await upload(file, prefix + path, form.dataset.bucket, replaces, list)) stored += 1;
    }
    button.disabled = false;
    form.reset();
    if (stored) await swap(location.href, {}, ["form[action='/delete/confirm']", "main > p.empty"]);
    document.body.dataset.uploaded = String(Number(document.body.dataset.uploaded ?? 0) + files.length);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
  });
  const area = form.closest(".tools");
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("drop");
  });
  area.addEventListener("dragleave", () => area.classList.remove("drop"));
  area.addEventListener("drop", async (event) => {
    event.preventDefault();
    area.classList.remove("drop");
    send(await droppedFiles(event.dataTransfer.items));
  });
}

/** Loads a page, and replaces an element here by one of that page. In both, it is the first that one of the selectors finds, in their order. */
async function swap(url, options, selectors) {
  const response = await fetch(url, options);
  if (response.redirected && new URL(response.url).pathname === "/sign-in") {
    location.reload();
    return;
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const find = (root) => selectors.map((selector) => root.querySelector(selector)).find(Boolean);
  const [before, after] = [find(document), find(page)];
  if (before && after) before.replaceWith(document.adoptNode(after));
}

/** Loads a live page again at intervals, while it is visible and the user has no control, details or selection in use. */
function keepLive(seconds) {
  const refresh = async () => {
    const main = document.querySelector("main");
    const isBusy = main.contains(document.activeElement) && document.activeElement !== main;
    const open = main.querySelector("details[open]") || !document.getSelection()?.isCollapsed;
    if (!document.hidden && !isBusy && !open) {
      await swap(location.href, {}, ["main"]).catch(() => {});
    }
    const next = Number(document.querySelector("main").dataset.refresh) || seconds;
    setTimeout(refresh, next * 1000);
  };
  setTimeout(refresh, seconds * 1000);
}

/** Shows the preview of rules a moment after the last keystroke. */
function prepareRules(form) {
  let timer;
  let latest = 0;
  const preview = async () => {
    const own = ++latest;
    const body = new URLSearchParams(new FormData(form));
    const response = await fetch(form.action, { method: "POST", body });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const found = page.getElementById("preview");
    if (found && own === latest) document.getElementById("preview").replaceChildren(...found.childNodes);
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => preview().catch(() => {}), 300);
  });
}

document.addEventListener("click", async (event) => {
  const id = event.target.dataset?.copy;
  if (!id) return;
  const input = document.getElementById(id);
  input.select();
  await navigator.clipboard?.writeText(input.value).catch(() => {});
  event.target.textContent = "Copied";
});

const uploadForm = document.getElementById("upload");
if (uploadForm) prepareUploads(uploadForm);
const rulesForm = document.getElementById("rules-form");
if (rulesForm) prepareRules(rulesForm);
const refreshSeconds = Number(document.querySelector("main")?.dataset.refresh);
if (refreshSeconds) keepLive(refreshSeconds);
