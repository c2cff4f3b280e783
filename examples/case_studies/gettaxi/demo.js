/* The bus beside the city: counters, buttons, topics, groups, nodes, events. The state comes from /bus/live, twice a second. */

const $ = id => document.getElementById(id);
const number = value => Number(value ?? 0).toLocaleString("en");
const time = ms => new Date(ms).toLocaleTimeString("en-GB");
const element = (name, text, className = "") => Object.assign(document.createElement(name), { textContent: text, className });
const KEPT_MS = 60_000, rates = new Map();
let shown = 0;

function counters({ audit, load, parts }) {
  for (const name of ["lost", "doubled", "wrong"]) {
    $(name).textContent = number(audit[name]);
    $(name).parentElement.classList.toggle("bad", audit[name] > 0);
    $(name).parentElement.classList.toggle("unknown", audit.checked === 0 && audit[name] === 0);
  }
  const kills = parts.reduce((sum, part) => sum + part.kills, 0);
  $("checked").textContent = `${number(audit.checked)} of ${number(load.acknowledged)} acknowledged records found in their topics, ` +
    `${number(audit.fares)} fares computed again` + (kills ? `, through ${kills} ${kills === 1 ? "kill" : "kills"}` : "");
  const rate = element("b", number(load.per_s));
  $("rate").replaceChildren(rate, " records/s acknowledged");
}

const LABELS = { leader: "the leader", controller: "the controller" };
function buttons({ parts, aliases }) {
  const away = new Set(parts.filter(part => part.away).map(part => part.name));
  const wanted = [
    ...parts.map(part => ({ name: part.name, text: part.name, off: part.away, note: part.away ? "starts again" : part.kills ? part.kills + "×" : "" })),
    ...Object.entries(aliases).map(([name, target]) => ({ name, text: LABELS[name] ?? name, off: away.has(target), note: target })),
  ];
  // Buttons stay the same elements, so that they keep the focus.
  for (const { name, text, off, note } of wanted) {
    let button = $("buttons").querySelector(`[data-part="${name}"]`);
    if (!button) {
      button = element("button", "");
      button.type = "button";
      button.dataset.part = name;
      button.append(element("span", text), element("small", ""));
      button.onclick = () => kill(name, button);
      $("buttons").append(button);
    }
    button.disabled = off;
    button.lastChild.textContent = note;
  }
}
async function kill(name, button) {
  button.disabled = true;
  $("refused").textContent = "";
  try {
    const answer = await fetch("/kill/" + name, { method: "POST", headers: { "X-Demo": "kill" } });
    if (!answer.ok) $("refused").textContent = (await answer.json()).error;
  } catch {
    $("refused").textContent = "the demo does not answer";
  }
}

function spark(points) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path");
  const now = Date.now(), most = Math.max(1, ...points.map(([, value]) => value));
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 60 16");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", points.map(([at, value], index) => `${index ? "L" : "M"}${(60 - (now - at) / 1000).toFixed(1)} ${(15 - 14 * value / most).toFixed(1)}`).join(""));
  svg.append(path);
  return svg;
}
function topics({ topics }) {
  const now = Date.now();
  $("topics").tBodies[0].replaceChildren(...topics.map(topic => {
    const points = (rates.get(topic.topic) ?? []).filter(([at]) => at > now - KEPT_MS);
    if (!points.length || now - points.at(-1)[0] > 900) points.push([now, topic.records_per_s]);
    rates.set(topic.topic, points);
    const row = element("tr", ""), line = element("td", ""), name = element("td", topic.topic);
    name.title = `${topic.topic}, ${topic.partitions} partitions`;
    line.append(spark(points));
    row.append(name, element("td", number(Math.round(topic.records_per_s))), line, element("td", number(topic.records)));
    return row;
  }));
}

function groups({ groups }) {
  $("groups").replaceChildren(...groups.map(group => {
    const box = element("div", "", "group"), head = element("h3", group.group), figures = element("span", "");
    figures.textContent = `${group.members} ${group.members === 1 ? "member" : "members"} · lag ${number(group.lag)}`;
    head.append(figures);
    box.append(head);
    box.append(element("p", group.rebalance ? `last rebalance ${time(group.rebalanced_at_ms)}: ${group.rebalance}` : "no rebalance since its coordinator started"));
    return box;
  }));
}

function nodes({ nodes, under_replicated }) {
  $("cluster").hidden = nodes.length === 0;
  $("nodes").replaceChildren(...nodes.map(node => {
    const box = element("div", "", "node" + (node.serves ? "" : " away"));
    box.append(element("b", `node-${node.node}`), element("span", node.serves ? `leads ${node.leads}` : "away"));
    if (node.controller && node.serves) box.append(element("span", "controller"));
    return box;
  }));
  $("replicas").textContent = under_replicated ? `${under_replicated} partitions wait for a replica to catch up` : "every partition has all its replicas in sync";
}

function events({ events, reachable }) {
  if (!events.length) {
    $("events").replaceChildren(element("li", ""));
    $("events").firstChild.append(element("time", "–"), element("span", "nothing yet: kill something"));
    return;
  }
  $("events").replaceChildren(...events.toReversed().map(event => {
    const item = element("li", "", event.kind);
    item.append(element("time", time(event.at_ms)), element("span", event.text));
    return item;
  }));
}

const live = new EventSource("/bus/live");
live.onmessage = message => {
  const state = JSON.parse(message.data).at(-1);
  for (const show of [counters, buttons, topics, groups, nodes, events]) show(state);
  if (state.audit.checked && state.topics.length) document.body.dataset.bus = ++shown;
};
live.onerror = () => { $("rate").textContent = "the demo has ended, or is away"; };
