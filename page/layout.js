// Places for the nodes of a flow: in ranks, so that arrows point one way, ordered so that few of them cross. Plain data in and out.
const kSweeps = 8, kBetweenRanks = 86, kBetween = 22;

// `nodes`: [{id, along, across}], sizes along the ranks' direction and across it; `edges`: [{from, to, along, across}] by id, with the
// size of their labels.
// Gives {at: id → [along, across] of the middle, paths: [[along, across], …] by edge, along, across: the size of all}.
export function layout(nodes, edges) {
  const ranks = rank(nodes, edges);
  const { rows, chains } = spread(nodes, edges, ranks);
  order(rows);
  return place(rows, chains, between(edges, ranks));
}

// The longest way from a source; what goes back (memory of recurrent nets) is left out of account.
function rank(nodes, edges) {
  const out = new Map(nodes.map((n) => [n.id, []]));
  for (const e of edges) if (e.from !== e.to) out.get(e.from).push(e.to);
  const state = new Map(), order = [], back = new Set();
  for (const start of nodes) {
    if (state.has(start.id)) continue;
    const stack = [[start.id, 0]];
    state.set(start.id, "open");
    while (stack.length > 0) {
      const top = stack[stack.length - 1], next = out.get(top[0])[top[1]++];
      if (next === undefined) state.set(top[0], "done"), order.push(top[0]), stack.pop();
      else if (state.get(next) === "open") back.add(`${top[0]}\n${next}`);
      else if (!state.has(next)) state.set(next, "open"), stack.push([next, 0]);
    }
  }
  const ranks = new Map(nodes.map((n) => [n.id, 0]));
  const forward = (from) => out.get(from).filter((to) => !back.has(`${from}\n${to}`));
  for (const id of order.reverse()) for (const to of forward(id)) ranks.set(to, Math.max(ranks.get(to), ranks.get(id) + 1));
  const reached = new Set(edges.map((e) => e.to));
  for (const n of nodes) {  // a node without inputs comes right before its target
    const next = forward(n.id).map((to) => ranks.get(to));
    if (!reached.has(n.id) && next.length > 0) ranks.set(n.id, Math.min(...next) - 1);
  }
  return ranks;
}

// The room behind each rank: enough for the labels of arrows that leave it.
function between(edges, ranks) {
  const room = [];
  for (const e of edges) {
    const rank = Math.min(ranks.get(e.from), ranks.get(e.to));
    room[rank] = Math.max(room[rank] ?? kBetweenRanks, e.along ?? 0);
  }
  return room;
}

// Arrows over several ranks get a place in each, and beside an arrow to the next rank there is room for its label.
function spread(nodes, edges, ranks) {
  const rows = [];
  const put = (item) => (rows[item.rank] ??= []).push(item);
  const items = new Map(nodes.map((n) => [n.id, { ...n, rank: ranks.get(n.id), before: [], after: [] }]));
  for (const item of items.values()) put(item);
  const chains = edges.map((e) => {
    let from = items.get(e.from), to = items.get(e.to);
    const backward = from.rank > to.rank;
    if (backward) [from, to] = [to, from];
    const chain = [from], middle = from.rank + Math.floor((to.rank - from.rank) / 2);
    if (to.rank - from.rank === 1) from.across = Math.max(from.across, e.across ?? 0);
    for (let r = from.rank + 1; r < to.rank; ++r) {
      const bend = { along: 0, across: r === middle ? Math.max(8, e.across ?? 0) : 8, rank: r, before: [], after: [] };
      put(bend);
      chain.push(bend);
    }
    if (from !== to) chain.push(to);
    for (let i = 1; i < chain.length; ++i) {
      if (chain[i - 1].rank === chain[i].rank) continue;
      chain[i - 1].after.push(chain[i]);
      chain[i].before.push(chain[i - 1]);
    }
    return { chain, backward };
  });
  for (let r = 0; r < rows.length; ++r) rows[r] ??= [];
  return { rows, chains };
}

// Each by the mean place of its neighbours, down and up again.
function order(rows) {
  const number = (row) => row.forEach((item, i) => { item.place = i; });
  rows.forEach(number);
  const mean = (item, of) => (of.length > 0 ? of.reduce((sum, n) => sum + n.place, 0) / of.length : item.place);
  for (let sweep = 0; sweep < kSweeps; ++sweep) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      for (const item of row) item.wish = mean(item, down ? item.before : item.after);
      row.sort((a, b) => a.wish - b.wish);
      number(row);
    }
  }
}

// Where each wants to be, as far as those beside leave room; those that something flows into count most, so that ways run straight.
function settle(row) {
  const room = (a, b) => (a.across + b.across) / 2 + kBetween;
  for (let i = 1; i < row.length; ++i) row[i].y = Math.max(row[i].y, row[i - 1].y + room(row[i - 1], row[i]));
  let sum = 0, weight = 0;
  for (const item of row) {
    const w = item.before.length > 0 ? 100 : 1;
    sum += w * (item.y - item.wish);
    weight += w;
  }
  for (const item of row) item.y -= sum / weight;
}

function place(rows, chains, room) {
  for (const row of rows) {
    let y = 0;
    for (const item of row) item.y = y + item.across / 2, y += item.across + kBetween;
  }
  for (let sweep = 0; sweep <= kSweeps; ++sweep)  // the last goes down
    for (const row of sweep % 2 === 0 ? rows : [...rows].reverse()) {
      if (row.length === 0) continue;
      for (const item of row) {
        const of = sweep % 2 === 0 ? item.before : item.after;
        item.wish = of.length > 0 ? of.reduce((sum, n) => sum + n.y, 0) / of.length : item.y;
        item.y = item.wish;
      }
      settle(row);
    }
  const top = Math.min(...rows.flat().map((item) => item.y - item.across / 2));
  let x = 0, last = 0;
  for (const [rank, row] of rows.entries()) {
    const along = Math.max(0, ...row.map((item) => item.along));
    for (const item of row) item.x = x + along / 2, item.y -= top;
    last = room[rank] ?? kBetweenRanks;
    x += along + last;
  }
  const at = new Map(rows.flat().filter((item) => item.id !== undefined).map((item) => [item.id, [item.x, item.y]]));
  const paths = chains.map(({ chain, backward }) => {
    const points = chain.map((item, i) => [item.x + (item.id === undefined || chain.length === 1 ? 0 : (i === 0 ? 0.5 : -0.5) * item.along), item.y]);
    return backward ? points.reverse() : points;
  });
  return { at, paths, along: x - last, across: Math.max(...rows.flat().map((item) => item.y + item.across / 2)) };
}
