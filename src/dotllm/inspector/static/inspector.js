// The page of the inspector. All that is known comes from answers of the server (`ask`), or of the snapshot in `data`.
"use strict";
const CM = CodeMirror;
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const OPTIONS = ["whitespace", "order", "additional_properties"];
const VISIBLE = { " ": "·", "\n": "↵", "\t": "⇥", "\r": "\\r" };
let walked = { steps: [], bad: null, outline: [] }; // the last answer about the text
let at = 0; // the position that is looked at
let seed = 0;
let pattern = {}; // a request's own rule for white space
let tokens = null; // of a live request; null: those of the text

// ---- elements

/** An element with attributes and children; strings become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null && child !== ""));
  return element;
}

/** Text with its white space made visible. */
function visible(text) {
  return [...text.matchAll(/([ \n\t\r])\1*|[^ \n\t\r]+/g)].map(([part, space]) =>
    space ? make("small", {}, part.length > 9 ? `${VISIBLE[space]}×${part.length}` : VISIBLE[space].repeat(part.length)) : part);
}

const number = (value) => value.toLocaleString("en");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// ---- the editor of the specification

const highlight = CM.HighlightStyle.define([
  { tag: CM.tags.propertyName, color: "var(--name)" },
  { tag: CM.tags.string, color: "var(--string)" },
  { tag: CM.tags.number, color: "var(--number)" },
  { tag: [CM.tags.bool, CM.tags.null], color: "var(--keyword)" },
]);
const language = new CM.Compartment();
const editor = new CM.EditorView({
  parent: $("spec"),
  state: CM.EditorState.create({
    extensions: [
      CM.lineNumbers(), CM.history(), CM.drawSelection(), CM.bracketMatching(), CM.highlightActiveLine(),
      CM.keymap.of([...CM.defaultKeymap, ...CM.historyKeymap, ...CM.lintKeymap]), CM.EditorView.lineWrapping,
      CM.syntaxHighlighting(highlight), language.of([]), CM.EditorState.readOnly.of(Boolean(data.answers)),
      CM.EditorView.contentAttributes.of({ "aria-label": "Specification", spellcheck: "false" }),
      CM.EditorView.updateListener.of((update) => update.docChanged && later(refresh)),
    ],
  }),
});

/** The range in the editor of a refusal's or an outline's place. */
function range(place) {
  const text = editor.state.doc;
  if (place.line) {
    const line = text.line(Math.min(place.line, text.lines));
    const from = Math.min(line.from + (place.column || 1) - 1, line.to);
    const word = /^(\w+|.)?/.exec(text.sliceString(from, line.to))[0];
    return place.column ? { from, to: from + word.length } : line;
  }
  if (place.pointer == null) return { from: Math.min(place.offset || 0, text.length), to: text.length };
  let node = CM.ensureSyntaxTree(editor.state, text.length, 1000)?.topNode.firstChild;
  let found = node;
  const read = (part) => text.sliceString(part.from, part.to);
  for (const token of place.pointer.split("/").slice(1).map((t) => t.replace(/~1/g, "/").replace(/~0/g, "~"))) {
    const children = node?.getChildren(node.name === "Object" ? "Property" : undefined) ?? [];
    const items = [];
    for (let child = node?.firstChild; child; child = child.nextSibling) if (!/^[[\],]$/.test(child.name)) items.push(child);
    found = node?.name === "Object" ? children.find((p) => JSON.parse(read(p.firstChild)) === token) : items[+token];
    if (!found) break;
    node = found.name === "Property" ? found.lastChild : found;
  }
  if (!found) return { from: 0, to: 0 };
  const whole = text.lineAt(found.from).number === text.lineAt(found.to).number;
  return { from: found.from, to: whole ? found.to : (found.name === "Property" ? found.firstChild.to : found.from + 1) };
}

function reveal(place) {
  const { from, to } = range(place);
  editor.dispatch({ selection: { anchor: from, head: to }, scrollIntoView: true });
  editor.focus();
}

function showRefusal(error) {
  $("refusal").hidden = !error;
  $("refusal").replaceChildren();
  let diagnostics = [];
  if (error) {
    const jsonError = /line (\d+) column (\d+)/.exec(error.message); // of Python's parser
    if (jsonError && error.line == null && !error.pointer) [error.line, error.column] = [+jsonError[1], +jsonError[2]];
    const { from, to } = range(error);
    const hasPlace = error.pointer || error.line || error.offset != null;
    diagnostics = [{ from, to: Math.max(to, Math.min(from + 1, editor.state.doc.length)), severity: "error", message: error.message },
      ...(error.related ?? []).filter(({ pointer }) => pointer !== error.pointer).map((other) => ({ ...range(other), severity: "error", message: other.message }))];
    $("refusal").append(
      make("h3", {}, `Refused${error.code ? ": " + error.code.replaceAll("_", " ") : ""}`), make("p", {}, error.message),
      error.help ? make("p", {}, "→ ", error.help) : "",
      hasPlace ? make("p", { class: "facts" }, whereIs(error), " ", make("code", {}, error.pointer || "")) : "");
  }
  mark(diagnostics);
}

function mark(diagnostics) {
  editor.dispatch(CM.setDiagnostics(editor.state, diagnostics));
}

/** The line and column of a place of the specification, as a button that shows it there. */
function whereIs(place) {
  const { from } = range(place);
  const line = editor.state.doc.lineAt(from);
  return make("button", { type: "button", onclick: () => reveal(place) }, `line ${line.number}, column ${from - line.from + 1}`);
}

// ---- questions

function question() {
  const kind = $("kind").value;
  const options = { ...pattern };
  if ($("whitespace").value === "none") options.any_whitespace = false;
  if ($("whitespace").value === "any") options.whitespace = "any";
  if ($("order").value !== "declared") options.order = $("order").value;
  if ($("additional_properties").checked) options.additional_properties = "open";
  return { kind, text: editor.state.doc.toString(), options, document: $("document").value, ...(tokens && { tokens }) };
}

/** The answer to a question of the server's (or, of a snapshot, to the one that it was made with). */
async function ask(name, more = {}) {
  if (data.answers) return name === "position" ? data.answers.position[more.at] : data.answers[name];
  const key = $("key").value;
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  const body = JSON.stringify({ ...question(), ...more });
  const response = await fetch(`${data.questions || "api/"}${name}`, { method: "POST", headers, body });
  if (response.status === 401) throw new Error("the API key is missing or wrong");
  if (!response.ok) throw new Error((await response.text()) || response.statusText);
  return response.json();
}

let timer = 0;
function later(action) {
  clearTimeout(timer);
  timer = setTimeout(action, 250);
}

let asked = 0; // only the answer to the last question is shown
/** Ask about the text again, and show all there is; `to`: the position to look at, by default the place that matters. */
async function refresh(to) {
  clearTimeout(timer);
  const turn = ++asked;
  remember();
  try {
    const answer = await ask("walk");
    if (turn !== asked) return;
    walked = { steps: [], bad: null, ...answer };
    showRefusal(answer.error);
    showStatus(answer);
    const last = walked.bad ?? walked.steps.length - 1;
    at = Math.max(0, Math.min(to ?? last, last));
    showChips();
    showOutline();
    $("followed").hidden = Boolean(answer.error);
    if (!answer.error) await Promise.all([showPosition(), showSamples(), showWhy()]);
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  say(`No answer: ${error.message}`, "bad");
  $("followed").hidden = true;
}

function say(text, kind = "") {
  $("status").textContent = text;
  $("status").className = kind;
}

function showStatus({ error, steps, bad, finished }) {
  if (error) return say("Nothing to follow: the specification is refused.", "bad");
  if (bad !== null) return say(`Does not fit: token ${bad + 1} of ${steps.length - 1}, ${JSON.stringify(steps[bad].text)}, may not stand there.`, "bad");
  if (finished || steps.at(-1).end) return say(finished || steps.at(-1).allowed <= 1 ? "Fits, and is complete." : "Fits. It may end here or go on.", "ok");
  say(steps.length > 1 ? "Fits so far. It is not complete." : "No text yet. Click an example below, or write.");
}

// ---- the text as tokens

function showChips() {
  const chips = [];
  walked.steps.forEach((step, i) => {
    const isEnd = i === walked.steps.length - 1;
    if (isEnd && walked.bad !== null) return;
    const kind = isEnd ? "end" : i === walked.bad ? "bad" : walked.bad !== null && i > walked.bad ? "unseen" : step.forced ? "forced" : "ok";
    const share = step.allowed ? (1 + Math.log(step.allowed)) / (1 + Math.log(data.size)) : 0;
    const what = { end: "end of the text", bad: "does not fit", unseen: "not reached", forced: "forced", ok: "fits" }[kind];
    const gone = taken[i] ? `; the mask took ${percent(taken[i])} away` : "";
    const said = kind === "unseen" ? what : `${what}; ${plural(step.allowed, "token")} allowed here${gone}`;
    const chip = make("span", { class: `chip ${kind}`, role: "option", title: said + (step.id == null ? "" : `; id ${step.id}`),
      "aria-label": `${step.text || "end"}: ${said}`, "aria-selected": "false", tabindex: "-1", "data-at": kind === "unseen" ? null : i },
    ...(isEnd ? ["end"] : visible(step.text)), make("i", { style: `width:${(100 * share).toFixed(1)}%` }));
    if (taken[i]) chip.append(make("i", { class: "taken", style: `width:${(100 * taken[i]).toFixed(1)}%` }));
    chips.push(chip);
    if (step.text.endsWith("\n")) chips.push(make("span", { class: "line", role: "presentation" }));
  });
  $("chips").replaceChildren(...chips);
  select(at, false);
}

function select(position, focus = true) {
  at = position;
  for (const chip of $("chips").children) {
    const chosen = chip.dataset.at === String(at);
    chip.setAttribute("aria-selected", String(chosen));
    chip.tabIndex = chosen ? 0 : -1;
    if (chosen) focus ? chip.focus() : chip.scrollIntoView({ block: "nearest" });
  }
}

function goTo(position) {
  const last = walked.bad ?? walked.steps.length - 1;
  select(Math.max(0, Math.min(position, last)));
  remember();
  showPosition().catch(fail);
}

$("chips").addEventListener("click", (event) => {
  const chip = event.target.closest("[data-at]");
  if (chip) goTo(+chip.dataset.at);
});
$("chips").addEventListener("keydown", (event) => {
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: Infinity }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  goTo(to);
});

// ---- a position

/** The text before a position. */
const before = (position) => walked.steps.slice(0, position).map((step) => (step.special ? "" : step.text)).join("");

function write(text, position) {
  forget();
  $("document").value = text;
  refresh(position);
}

function continuation(text, position) {
  const plain = !/\\x[0-9A-F]{2}/i.test(text) && !data.answers;
  const attributes = plain ? { type: "button", title: "continue with it", onclick: () => write(before(position) + text) } : {};
  return make(plain ? "button" : "code", attributes, ...visible(text));
}

async function showPosition() {
  const turn = at;
  const answer = await ask("position", { at });
  if (turn !== at || !answer || answer.error) return;
  const step = walked.steps[at];
  const isEnd = at === walked.steps.length - 1;
  const nodes = [make("h3", {}, isEnd ? "After the text" : `In the place of token ${at + 1}, `, isEnd ? "" : make("code", {}, ...visible(step.text)))];
  const place = answer.path === null ? "" : `${answer.path || "the document"}, ${answer.where}`;
  const facts = make("p", { class: "facts" }, make("b", {}, number(answer.allowed)), ` of ${plural(data.size, "token")} may stand here `);
  if (place) facts.append(make("span", { class: "tag" }, place));
  if (answer.forced) facts.append(make("span", { class: "tag" }, "forced: ", make("code", {}, ...visible(answer.forced.slice(0, 80)))));
  if (taken[at]) facts.append(make("span", { class: "tag taken" }, `the mask took ${percent(taken[at])} of the model's probability away`));
  const field = fields[answer.path];
  if (field?.probability != null) facts.append(make("span", { class: "tag" }, `this value was ${percent(field.probability)} likely`));
  for (const { value, probability } of field?.members ?? []) {
    facts.append(make("span", { class: "tag" }, make("code", {}, JSON.stringify(value)), ` ${probability == null ? "not known" : percent(probability)}`));
  }
  if (answer.end) facts.append(make("span", { class: "tag" }, "the text may end here"));
  const meanings = answer.groups.some((group) => group.meaning);
  const rows = answer.groups.map((group) => make("tr", {},
    make("td", {}, group.label.length === 1 ? make("code", { class: "first" }, group.label) : group.label,
      group.then ? make("code", { class: "then" }, ...visible(group.then)) : ""),
    meanings ? make("td", {}, group.meaning) : "",
    make("td", { class: "number" }, number(group.tokens)),
    make("td", {}, ...group.examples.map((text) => continuation(text, turn)))));
  const head = make("tr", {}, make("th", {}, "begins with"), meanings ? make("th", {}, "what it is") : "", make("th", { class: "number" }, "tokens"), make("th", {}, "such as"));
  $("position").replaceChildren(...nodes, facts, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  showOutline();
}

async function showWhy() {
  $("why").hidden = true;
  if (walked.bad === null) return;
  const turn = asked;
  const { reason, help, blamed = [], is_minimal: minimal } = await ask("why");
  if (turn !== asked || !(reason || blamed.length)) return;
  const places = blamed.map(({ pointer, value }) => {
    const text = JSON.stringify(value);
    return make("p", { class: "facts" }, whereIs({ pointer }), " ", make("code", {}, pointer), text.length < 80 ? ` is ${text}` : "");
  });
  $("why").replaceChildren(make("h3", {}, `Why: ${reason}`), help ? make("p", {}, `→ ${help}`) : "", ...places,
    minimal === false ? make("p", { class: "facts" }, "Perhaps fewer keywords would do.") : "");
  $("why").hidden = false;
  mark(blamed.map((blame) => ({ ...range(blame), severity: "warning", message: reason })));
}

async function showSamples() {
  const { texts = [] } = await ask("samples", { seed });
  $("samples").replaceChildren(...texts.map(({ text, whole }) => make("li", {},
    make("button", { type: "button", disabled: Boolean(data.answers), title: "inspect it", onclick: () => write(text) }, text || "(empty)", whole ? "" : " …"))));
}

$("shuffle").addEventListener("click", () => {
  seed += 1;
  showSamples().catch(fail);
});

// ---- the outline

function showOutline() {
  const path = walked.steps[at]?.path;
  const matches = (node) => path !== undefined && node.path !== undefined && (node.path === path ||
    new RegExp(`^${node.path.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[^/]*")}$`).test(path));
  const written = new Set(walked.steps.slice(0, at).map((step) => step.path).filter((other) => other !== path));
  const sure = (node) => (fields[node.path]?.probability != null ? make("em", {}, ` ${percent(fields[node.path].probability)} likely`) : "");
  const list = (nodes) => make("ul", {}, ...nodes.map((node) => make("li", { class: node.path && written.has(node.path) ? "written" : null },
    make("button", { type: "button", class: matches(node) ? "here" : null, "aria-current": matches(node) ? "location" : null, onclick: () => reveal(node) },
      make("b", {}, node.label), " ", make("span", {}, node.summary), sure(node)),
    node.children.length ? list(node.children) : "")));
  $("outline").replaceChildren(list(walked.outline));
  $("outline-box").hidden = !walked.outline.length;
}

// ---- requests of a server, token by token

let followed = null; // the id of a request
let shown = null; // the id of the request that is in the editor
let taken = []; // of its tokens, the share of the model's probability that the mask took away (null: not known)
let fields = {}; // the confidence of its values, by JSON Pointer

const percent = (share) => `${share > 0 && share < 0.01 ? "under 1" : Math.round(100 * share)} %`;

/** The text is no longer that of a request. */
function forget() {
  tokens = followed = shown = null;
  taken = [];
  fields = {};
}

async function follow(id) {
  followed = id;
  const request = await ask("request", { id });
  if (followed !== id || (shown === id && request.tokens.length === tokens?.length && !request.fields === !Object.keys(fields).length)) return;
  tokens = request.tokens;
  taken = request.mass.map((mass) => (mass == null ? null : 1 - Math.exp(mass)));
  fields = request.fields ?? {};
  await (shown === id ? refresh() : open({ ...request, text: indented(request.text) }));
  shown = followed;
  $("document").value = before(walked.steps.length);
}

/** JSON in lines, where that changes nothing: JavaScript's numbers are floats, and it puts keys that are numbers first. */
function indented(text) {
  try {
    return /\d{16}|\d[.eE]|"\d+"\s*:/.test(text) ? text : JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function showRequests() {
  if (document.hidden || !$("live").open) return;
  try {
    const { requests } = await ask("requests");
    $("requests").replaceChildren(...requests.map(({ id, kind, text, tokens: count, end }) => make("li", {},
      make("button", { type: "button", "aria-pressed": String(id === followed), title: id, onclick: () => follow(id).then(showRequests) },
        `${end || "running"}, ${plural(count, "token")}: ${kind.replace("_", " ")} ${text}`))));
    if (!requests.length) $("requests").replaceChildren(make("li", {}, "No constrained request yet."));
    if (followed && requests.some(({ id }) => id === followed)) await follow(followed);
  } catch (error) {
    $("requests").replaceChildren(make("li", {}, `No answer: ${error.message}`));
  }
}

if (data.live) {
  $("live").hidden = false;
  $("key").value = sessionStorage.getItem("key") || "";
  $("key").addEventListener("change", () => (sessionStorage.setItem("key", $("key").value), refresh(), showRequests()));
  setInterval(showRequests, 1000);
}

// ---- the page's state: in its address, so that it can be sent to somebody

function remember() {
  if (data.answers) return;
  const { kind, text, options, document: written } = question();
  const json = new TextEncoder().encode(JSON.stringify({ kind, text, options, document: written, at }));
  let bytes = "";
  for (const byte of json) bytes += String.fromCharCode(byte);
  history.replaceState(null, "", bytes.length < 50000 ? `#${btoa(bytes)}` : "#");
}

function remembered() {
  try {
    const bytes = atob(location.hash.slice(1));
    return bytes ? JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (char) => char.charCodeAt(0)))) : null;
  } catch {
    return null;
  }
}

/** Show a specification and a text, as a question has them. */
function open(state) {
  tokens = state.tokens ?? null;
  if (!tokens) forget();
  const options = state.options ?? {};
  pattern = options.whitespace_pattern ? { whitespace_pattern: options.whitespace_pattern } : {};
  $("kind").value = state.kind;
  $("whitespace").value = options.any_whitespace === false ? "none" : options.whitespace ?? "formatted";
  $("order").value = options.order ?? "declared";
  $("additional_properties").checked = options.additional_properties === "open";
  $("document").value = state.document ?? "";
  changeKind();
  editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: state.text } });
  return refresh(state.at);
}

function changeKind() {
  const kind = $("kind").value;
  $("options").disabled = !["json_schema", "json_object", "structural_tag"].includes(kind);
  editor.dispatch({ effects: language.reconfigure(["regex", "grammar"].includes(kind) ? [] : CM.json()) });
}

for (const id of OPTIONS) $(id).addEventListener("change", () => refresh());
$("kind").addEventListener("change", () => (changeKind(), refresh()));
$("document").addEventListener("input", () => { forget(); later(refresh); });
data.examples.forEach(({ name }, i) => $("example").append(make("option", { value: i }, name)));
$("example").addEventListener("change", (event) => event.target.value && open(data.examples[event.target.value]));
$("tokenizer").textContent = data.tokenizer ? `${data.tokenizer}, ${plural(data.size, "token")}` : "tokens: single bytes (--tokenizer MODEL)";
if (data.answers) for (const id of ["example", "kind", "options", "document", "shuffle"]) $(id).disabled = true;
open((!data.answers && remembered()) || data.start || data.examples[1]);
