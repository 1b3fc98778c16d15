"use strict";
// The page is whole without this: times in the reader's own zone, buttons that copy, changes as they happen.
(() => {
  const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

  function localise(within) {
    for (const time of within.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) {
        time.title = time.textContent;
        time.textContent = moment.format(at);
      }
    }
  }

  function addCopyButton(text) {
    const button = document.createElement("button");
    button.className = "quiet copied";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch { // no clipboard without https: select it instead
        getSelection().selectAllChildren(text);
        button.textContent = "Selected: copy it with the keyboard";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 3000);
    });
    text.after(button);
  }

  const MOST_ROWS = 200;

  function follow(list) {
    const state = document.getElementById("live-state");
    const said = document.getElementById("live-said");
    let after = list.dataset.after;
    let source = null;
    let unsaid = [];

    function tell(live, words) {
      state.hidden = false;
      state.classList.toggle("lost", !live);
      state.textContent = words;
    }

    function announce(words) { // several at once are one sentence
      unsaid.push(words);
      if (unsaid.length === 1) {
        setTimeout(() => {
          said.textContent = unsaid.length === 1 ? unsaid[0] : `${unsaid.length} new changes`;
          unsaid = [];
        }, 500);
      }
    }

    function rowOf(html) {
      const template = document.createElement("template");
      template.innerHTML = html; // made by the server's template, which escapes every name
      localise(template.content);
      return template.content.firstElementChild;
    }

    function heard(event) {
      const told = JSON.parse(event.data);
      const row = rowOf(told.html);
      const old = document.getElementById(told.key);
      if (event.lastEventId) after = event.lastEventId;
      if (old) {
        old.replaceWith(row);
      } else if (event.type === "change") {
        row.classList.add("new");
        list.prepend(row);
        document.getElementById("nothing")?.remove();
        while (list.children.length > MOST_ROWS) list.lastElementChild.remove();
        announce(told.said);
      }
    }

    function connect() {
      if (source || document.hidden) return;
      const address = list.dataset.events;
      source = new EventSource(`${address}${address.includes("?") ? "&" : "?"}after=${encodeURIComponent(after)}`);
      source.addEventListener("open", () => tell(true, "Live"));
      source.addEventListener("change", heard);
      source.addEventListener("update", heard);
      source.addEventListener("many", () => tell(false, "Very many changes: reload the page to see them"));
      source.addEventListener("error", () => {
        tell(false, "Not live: trying again");
        if (source?.readyState === EventSource.CLOSED) {
          leave();
          setTimeout(connect, 10000);
        }
      });
    }

    function leave() {
      source?.close();
      source = null;
    }

    // A browser opens only a few connections to one server: pages nobody looks at let go of theirs.
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : connect()));
    addEventListener("pagehide", leave);
    addEventListener("pageshow", connect);
    connect();
  }

  localise(document);
  document.querySelectorAll("pre.copy").forEach(addCopyButton);
  const list = document.getElementById("changes");
  if (list?.dataset.events) follow(list);
})();
