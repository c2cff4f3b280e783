/* A city, live: the map, the figures, the fares. Fills the elements with these ids, where a page has them: map, tiles, cars, cities, state,
   bars, drivers, rides, fares. */

const $ = id => document.getElementById(id), GLIDE_MS = 1000;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const number = value => Number(value ?? 0).toLocaleString("en");
let cities = [], city = null, live = null, drivers = new Map(), rides = new Map(), tiles = new Map(), paint = {}, view = null, previous = null;

function palette() { for (const name of ["free", "pickup", "ride", "wait", "silent", "surge", "grid", "card"]) paint[name] = colour("--" + name); }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { palette(); drawTiles(); });

const STATES = { FREE: "free", TO_PICKUP: "pickup", PICKED_UP: "ride", ON_RIDE: "ride", DROPPED_OFF: "free", free: "free", busy: "pickup", silent: "silent" };
function place(change, now) {
  const state = STATES[change.phase ?? change.state], known = drivers.get(change.driver_id);
  if (known) { [known.fromLat, known.fromLng] = where(known, now); known.lat = change.lat; known.lng = change.lng; known.since = now; known.state = state; }
  else drivers.set(change.driver_id, { lat: change.lat, lng: change.lng, fromLat: change.lat, fromLng: change.lng, since: now, state });
}
function where(one, now) {
  const part = Math.min((now - one.since) / GLIDE_MS, 1);
  return [one.fromLat + (one.lat - one.fromLat) * part, one.fromLng + (one.lng - one.fromLng) * part];
}
function take(changes) {
  const now = performance.now();
  let priced = false;
  for (const change of changes) {
    if (change.cell) { change.demand || change.supply ? tiles.set(change.cell, change) : tiles.delete(change.cell); priced = true; }
    else if (change.status) {
      if (["WAITING", "MATCHED", "ON_RIDE"].includes(change.status)) rides.set(change.ride_id, change);
      else { rides.delete(change.ride_id); if (change.status === "ENDED") fare(change); }
    } else place(change, now);
  }
  if (!view) fit();
  if (priced) drawTiles();
}
function fare(ride) {
  const row = document.createElement("li"), what = document.createElement("span"), price = document.createElement("b");
  const minutes = (new Date(ride.meter.last_at) - new Date(ride.meter.started_at)) / 60000;
  what.textContent = `${(ride.meter.distance_mm / 1e6).toFixed(2)} km, ${minutes.toFixed(1)} min` + (ride.surge_percent > 100 ? ` ×${(ride.surge_percent / 100).toFixed(1)}` : "");
  what.title = ride.ride_id;
  price.textContent = (ride.fare_cents / 100).toFixed(2);
  row.append(what, price);
  $("fares").prepend(row);
  while ($("fares").children.length > 14) $("fares").lastChild.remove();
}

/* The map: what there is, with a margin, so that metres are the same in both directions. */
function fit() {
  const about = cities.find(one => one.name === city), points = [...drivers.values()];
  if (!about) return;
  let reach = about.radius_km / 111.2;
  if (points.length) reach = Math.max(...points.map(one => Math.max(Math.abs(one.lat - about.lat), Math.abs(one.lng - about.lng) * Math.cos(about.lat * Math.PI / 180)))) * 1.06 || reach;
  view = { about, reach, found: points.length > 0, stretch: Math.cos(about.lat * Math.PI / 180) };
  drawTiles();
}
function sized(canvas) {
  const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect(), pen = canvas.getContext("2d");
  const width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  const scale = Math.max(Math.min(box.width, box.height), Math.max(box.width, box.height) * .58) / 2 / view.reach;
  return [pen, (lat, lng) => [box.width / 2 + (lng - view.about.lng) * view.stretch * scale, box.height / 2 - (lat - view.about.lat) * scale], box];
}
function drawTiles() {
  if (!view) return;
  const [pen, at] = sized($("tiles"));
  for (const tile of tiles.values()) {
    const corners = tile.outline.map(corner => at(...corner));
    pen.beginPath();
    corners.forEach(([x, y], index) => index ? pen.lineTo(x, y) : pen.moveTo(x, y));
    pen.closePath();
    if (tile.percent > 100) { pen.fillStyle = `rgba(${paint.surge}, ${.1 + .4 * (tile.percent - 100) / 200})`; pen.fill(); }
    pen.strokeStyle = paint.grid; pen.lineWidth = 1; pen.stroke();
  }
}
function drawCars() {
  requestAnimationFrame(drawCars);
  if (!view) return;
  const now = performance.now(), [pen, at] = sized($("cars"));
  pen.lineWidth = 1.2;
  for (const ride of rides.values()) {
    const [x, y] = at(ride.lat, ride.lng), car = drivers.get(ride.driver_id);
    if (ride.status === "WAITING") { pen.strokeStyle = paint.wait; pen.beginPath(); pen.arc(x, y, 4.5, 0, 7); pen.stroke(); }
    if (!car) continue;
    const [carX, carY] = at(...where(car, now));
    pen.strokeStyle = ride.status === "MATCHED" ? paint.pickup : paint.ride;
    pen.globalAlpha = ride.status === "MATCHED" ? .9 : .35;
    pen.setLineDash(ride.status === "MATCHED" ? [3, 3] : []);
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(carX, carY); pen.stroke();
    pen.globalAlpha = 1; pen.setLineDash([]);
  }
  for (const car of drivers.values()) {
    const [x, y] = at(...where(car, now));
    pen.fillStyle = paint[car.state];
    pen.beginPath(); pen.arc(x, y, car.state === "free" ? 2.6 : 3.4, 0, 7); pen.fill();
  }
  pen.font = "700 13px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.lineJoin = "round";
  for (const tile of tiles.values()) {
    if (tile.percent === 100) continue;
    const corners = tile.outline.map(corner => at(...corner)), middle = axis => corners.reduce((sum, one) => sum + one[axis], 0) / corners.length;
    const label = "×" + (tile.percent / 100).toFixed(1);
    pen.strokeStyle = paint.card; pen.lineWidth = 4; pen.strokeText(label, middle(0), middle(1));
    pen.fillStyle = `rgb(${paint.surge})`; pen.fillText(label, middle(0), middle(1));
  }
}

const DRIVERS = ["free", "seen", "to a rider", "on a ride"], RIDES = ["waiting", "ended", "fares", "kilometres", "given up", "most surge"];
const named = (names, values) => names.map((name, index) => [name, values[index]]);
function figures(where, pairs) {
  $(where).replaceChildren(...pairs.map(([name, value]) => {
    const box = document.createElement("div"), term = document.createElement("dt"), data = document.createElement("dd");
    term.textContent = name; data.textContent = value; box.append(term, data);
    return box;
  }));
}
async function count() {
  const answer = await fetch("/cities");
  if (!answer.ok) throw new Error((await answer.json()).error);
  cities = await answer.json();
  const open = cities.filter(one => one.here);
  if (!city) choose((open.toSorted((a, b) => b.drivers - a.drivers)[0] ?? cities[0]).name);
  if ($("cities").children.length !== cities.length) $("cities").replaceChildren(...cities.map(one => {
    const button = document.createElement("button");
    button.textContent = one.name; button.onclick = () => { choose(one.name); count(); };
    return button;
  }));
  for (const button of $("cities").children) button.setAttribute("aria-pressed", button.textContent === city);
  const one = cities.find(each => each.name === city), now = performance.now();
  if (!one.here) { empty("no driver has reported here yet"); return; }
  const rate = previous && previous.city === city ? (one.positions - previous.positions) / (now - previous.at) * 1000 : 0;
  if (!previous || previous.city !== city || now - previous.at > 900) previous = { city, positions: one.positions, at: now, rate: rate || previous?.rate };
  $("state").textContent = `${new Date(one.now).toISOString().slice(11, 19)} UTC · ${number(Math.max(0, Math.round(rate)))} positions/s · ${number(one.late)} late`;
  figures("drivers", named(DRIVERS, [number(one.free), number(one.drivers), number(one.matched), number(one.on_ride)]));
  $("bars").replaceChildren(...[["free", one.free], ["pickup", one.matched], ["ride", one.on_ride]].map(([name, value]) => {
    const bar = document.createElement("span"); bar.style.width = 100 * value / Math.max(one.drivers, 1) + "%"; bar.style.background = `var(--${name})`; return bar;
  }));
  figures("rides", named(RIDES, [number(one.waiting), number(one.ended), (one.fares_cents / 100).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }),
    number(Math.round(one.distance_m / 1000)), number(one.given_up), "×" + (Math.max(100, ...[...tiles.values()].map(tile => tile.percent)) / 100).toFixed(1)]));
  if (view && !view.found && drivers.size) fit();
  if (drivers.size && rate) document.body.dataset.ready = drivers.size;
}
/* A city without figures shows none, not those of the city before it. */
function empty(text) {
  $("state").textContent = text;
  $("bars").replaceChildren();
  for (const [where, names] of [["drivers", DRIVERS], ["rides", RIDES]]) figures(where, names.map(name => [name, "–"]));
}
function choose(name) {
  city = name; view = null; previous = null;
  drivers = new Map(); rides = new Map(); tiles = new Map(); $("fares").replaceChildren();
  empty("connecting");
  fit();
  live?.close();
  live = new EventSource(`/cities/${encodeURIComponent(name)}/live`);
  const anew = () => { drivers.clear(); rides.clear(); tiles.clear(); $("fares").replaceChildren(); };
  live.onopen = anew;
  live.addEventListener("reset", anew);
  live.addEventListener("away", () => { $("state").textContent = "the service is away"; });
  live.onerror = () => { $("state").textContent = "reconnecting"; };
  live.onmessage = message => take(JSON.parse(message.data));
}
palette();
new ResizeObserver(drawTiles).observe($("map"));
requestAnimationFrame(drawCars);
const again = () => count().catch(problem => { $("state").textContent = problem instanceof TypeError ? "reconnecting" : problem.message; }).finally(() => setTimeout(again, 1000));
again();
