"use strict";
// Sends the requests of the forms, to this service only: the content security policy allows no other.

const LONGEST = 20000;  // characters of an answer that are shown

async function send(form) {
  const query = new URLSearchParams();
  let path = form.dataset.path;
  for (const input of form.querySelectorAll("[data-place]")) {
    if (input.dataset.place === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(input.name, input.value);
  }
  const body = form.querySelector("textarea"), token = document.getElementById("token"), headers = {};
  if (body) headers["content-type"] = "application/json";
  if (token && token.value) headers.authorization = "Bearer " + token.value;
  const answer = await fetch(path + (query.size ? "?" + query : ""), { method: form.dataset.method, headers, body: body ? body.value : undefined });
  const text = await answer.text();
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  return `${answer.status}\n${json ? JSON.stringify(JSON.parse(text), null, 2) : text}`.slice(0, LONGEST);
}

// behind a proxy the service does not know the address, and whether it is https
for (const example of document.querySelectorAll(".curl")) {
  example.textContent = example.textContent.replace(document.querySelector("main").dataset.address, location.origin);
}
for (const form of document.forms) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const shown = document.createElement("pre");
    shown.tabIndex = 0;
    shown.textContent = await send(form).catch((error) => `The request failed: ${error.message}`);
    form.querySelector("output").replaceChildren(shown);
  });
}
