// The forward job for one row: a workgroup takes one run of the keys of one key/value head, and QUERIES queries. Each
// subgroup goes over four keys at a time by itself; they meet at the end. Latency is what counts: the loads of four keys
// are under way together, no barrier stands among them, and no loop indexes a private array, which would lie in memory.
//
// From the host: THREADS, LANES (of a subgroup), WIDTH (p.width), QUERIES. row_one.wgsl or row_four.wgsl gives the types
// of what there is once per query: Block, four numbers each, and Stat, one number each.

const TEAMS = THREADS / LANES;
const STEP = 4u * TEAMS;                        // keys of a step
const PIECES = (WIDTH + LANES - 1u) / LANES;    // elements of a row that a lane has: 4 or less
const PADDED = PIECES * LANES;

var<workgroup> queries: array<vec4f, QUERIES * PADDED>;  // zero beyond WIDTH
var<workgroup> sums: array<vec4f, TEAMS * WIDTH>;
var<workgroup> team_most: array<Stat, TEAMS>;
var<workgroup> team_sum: array<Stat, TEAMS>;

// The lane's element of four keys or values, of which one is a column.
fn keys(piece: u32, at: vec4u, part: u32) -> mat4x4f {
  if (piece >= PIECES) {
    return mat4x4f();
  }
  let i = at + min(piece * LANES + part, WIDTH - 1u);
  return mat4x4f(wide(b1[i.x]), wide(b1[i.y]), wide(b1[i.z]), wide(b1[i.w]));
}
fn values(piece: u32, at: vec4u, part: u32) -> mat4x4f {
  if (piece >= PIECES) {
    return mat4x4f();
  }
  let i = at + min(piece * LANES + part, WIDTH - 1u);
  return mat4x4f(wide(b2[i.x]), wide(b2[i.y]), wide(b2[i.z]), wide(b2[i.w]));
}

// What the lane's element adds to four scores of each query.
fn scores(piece: u32, k: mat4x4f, part: u32) -> Block {
  if (piece >= PIECES) {
    return Block();
  }
  return transpose(k) * query_block(piece * LANES + part);
}

fn larger(most: f32, x: vec4f) -> f32 {
  return max(max(most, max(x.x, x.y)), max(x.z, x.w));
}
fn exponentials(x: vec4f, most: f32) -> vec4f {
  return select(exp(x - most), vec4f(0.0), x <= vec4f(NONE));
}

fn keep(piece: u32, team: u32, part: u32, x: vec4f) {
  let w = piece * LANES + part;
  if (piece < PIECES && w < WIDTH) {
    sums[team * WIDTH + w] = x;
  }
}

// One query's weighted sum of all subgroups.
fn give(query: u32, last: u32, split: u32, lane: u32, x: mat4x4f, most: f32, sum: f32) {
  let team = lane / LANES;
  let part = lane % LANES;
  workgroupBarrier();
  keep(0u, team, part, x[0]);
  keep(1u, team, part, x[1]);
  keep(2u, team, part, x[2]);
  keep(3u, team, part, x[3]);
  workgroupBarrier();
  if (query > last) {
    return;
  }
  let at = query * p.splits + split;
  if (lane == 0u) {
    write_stats(at, most, sum);
  }
  let factor = average(sum);
  for (var w = lane; w < WIDTH; w += THREADS) {
    var total = sums[w];
    for (var i = 1u; i < TEAMS; i++) {
      total += sums[i * WIDTH + w];
    }
    result[at * WIDTH + w] = total * factor;
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  _ = &a2;
  let g = group.y;
  let first = g * p.group + group.z * QUERIES;
  let last = (g + 1u) * p.group - 1u;
  let team = lane / LANES;
  let part = lane % LANES;
  let range = split_range(key_range(0u), group.x, STEP);

  if (SPLIT && group.x > 0u && range.x == range.y) {  // combine.wgsl does not read what it would give
    if (lane < QUERIES && first + lane <= last) {
      write_stats((first + lane) * p.splits + group.x, NONE, 0.0);
    }
    return;
  }
  for (var i = lane; i < QUERIES * PADDED; i += THREADS) {
    let w = i % PADDED;
    let x = a1[min(first + i / PADDED, last) * WIDTH + min(w, WIDTH - 1u)];
    queries[i] = select(vec4f(0.0), x, w < WIDTH);
  }
  workgroupBarrier();

  var most = Stat(NONE);
  var sum = Stat();
  var acc0 = Block();
  var acc1 = Block();
  var acc2 = Block();
  var acc3 = Block();
  for (var t0 = range.x; t0 < range.y; t0 += STEP) {
    let t = vec4u(t0 + 4u * team) + vec4u(0u, 1u, 2u, 3u);
    let at = (min(t, vec4u(range.y - 1u)) % p.slots * p.kv_heads + g) * WIDTH;
    let k0 = keys(0u, at, part);
    let k1 = keys(1u, at, part);
    let k2 = keys(2u, at, part);
    let k3 = keys(3u, at, part);
    let v0 = values(0u, at, part);
    let v1 = values(1u, at, part);
    let v2 = values(2u, at, part);
    let v3 = values(3u, at, part);
    let score = sum_lanes(scores(0u, k0, part) + scores(1u, k1, part) + scores(2u, k2, part) + scores(3u, k3, part));
    let x = visible(score, t < vec4u(range.y));
    let now = most_of(most, x);
    let shrink = exp(most - now);
    let weights = weights_of(x, now);
    most = now;
    sum = sum * shrink + total_of(weights);
    acc0 = scaled(acc0, shrink) + v0 * weights;
    acc1 = scaled(acc1, shrink) + v1 * weights;
    acc2 = scaled(acc2, shrink) + v2 * weights;
    acc3 = scaled(acc3, shrink) + v3 * weights;
  }

  if (part == 0u) {
    team_most[team] = most;
    team_sum[team] = sum;
  }
  workgroupBarrier();
  var all_most = team_most[0];
  for (var i = 1u; i < TEAMS; i++) {
    all_most = max(all_most, team_most[i]);
  }
  var all_sum = Stat();
  for (var i = 0u; i < TEAMS; i++) {
    all_sum += team_sum[i] * exp(team_most[i] - all_most);
  }
  let shrink = exp(most - all_most);
  give_all(first, last, group.x, lane, scaled(acc0, shrink), scaled(acc1, shrink), scaled(acc2, shrink),
           scaled(acc3, shrink), all_most, all_sum);
}
