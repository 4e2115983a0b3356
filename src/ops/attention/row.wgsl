// The forward job for one row: a workgroup takes one run of the keys of one key/value head, and QUERIES queries. Each
// subgroup goes over four keys at a time by itself; they meet at the end. Latency is what counts: the loads of four keys
// are under way together, no barrier stands among them, and no loop indexes a private array, which would lie in memory.
//
// From the host: THREADS, LANES (of a subgroup), WIDTH (p.width), QUERIES. row_one.wgsl or row_four.wgsl gives the types
// of what there is once per query: Block, four numbers each, and Stat, one number each. row_given.wgsl or row_heads.wgsl
// gives the queries, the positions whose keys are stored, and OWN: the row's own key and value come from its projections.

const TEAMS = THREADS / LANES;
const STEP = 4u * TEAMS;                        // keys of a step
const PIECES = (WIDTH + LANES - 1u) / LANES;    // elements of a row that a lane has: 4 or less
const PADDED = PIECES * LANES;

var<workgroup> queries: array<vec4f, QUERIES * PADDED>;  // zero beyond WIDTH
var<workgroup> sums: array<vec4f, TEAMS * WIDTH>;
var<workgroup> team_most: array<Stat, TEAMS>;
var<workgroup> team_sum: array<Stat, TEAMS>;

// The lane's elements of four keys or values, of which one is a column.
struct Four {
  m0: mat4x4f,
  m1: mat4x4f,
  m2: mat4x4f,
  m3: mat4x4f,
}

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

struct Softmax {
  most: Stat,  // score
  sum: Stat,   // of weights
  acc0: Block, // weighted sums of the lane's elements
  acc1: Block,
  acc2: Block,
  acc3: Block,
}

fn with_four(s: Softmax, k: Four, v: Four, seen: vec4<bool>, part: u32) -> Softmax {
  let score = sum_lanes(scores(0u, k.m0, part) + scores(1u, k.m1, part) + scores(2u, k.m2, part) +
                        scores(3u, k.m3, part));
  let x = visible(score, seen);
  let most = most_of(s.most, x);
  let shrink = exp(s.most - most);
  let weights = weights_of(x, most);
  return Softmax(most, s.sum * shrink + total_of(weights), scaled(s.acc0, shrink) + v.m0 * weights,
                 scaled(s.acc1, shrink) + v.m1 * weights, scaled(s.acc2, shrink) + v.m2 * weights,
                 scaled(s.acc3, shrink) + v.m3 * weights);
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
  let g = group.y;
  let first = g * p.group + group.z * QUERIES;
  let last = (g + 1u) * p.group - 1u;
  let team = lane / LANES;
  let part = lane % LANES;
  let range = split_range(stored_range(), group.x, STEP);
  if (SPLIT && group.x > 0u && range.x == range.y) {  // combine.wgsl does not read what it would give
    if (lane < QUERIES && first + lane <= last) {
      write_stats((first + lane) * p.splits + group.x, NONE, 0.0);
    }
    return;
  }
  load_row(g, first, last, group.x == 0u && group.z == 0u, lane);
  workgroupBarrier();

  var s = Softmax(Stat(NONE), Stat(), Block(), Block(), Block(), Block());
  for (var t0 = range.x; t0 < range.y; t0 += STEP) {
    let t = vec4u(t0 + 4u * team) + vec4u(0u, 1u, 2u, 3u);
    let at = (min(t, vec4u(range.y - 1u)) % p.slots * p.kv_heads + g) * WIDTH;
    let k = Four(keys(0u, at, part), keys(1u, at, part), keys(2u, at, part), keys(3u, at, part));
    let v = Four(values(0u, at, part), values(1u, at, part), values(2u, at, part), values(3u, at, part));
    s = with_four(s, k, v, t < vec4u(range.y), part);
  }
  if (OWN && group.x == 0u) {
    let k = Four(own_key(0u, part), own_key(1u, part), own_key(2u, part), own_key(3u, part));
    let v = Four(own_value(0u, part), own_value(1u, part), own_value(2u, part), own_value(3u, part));
    s = with_four(s, k, v, vec4<bool>(team == 0u, false, false, false), part);
  }

  if (part == 0u) {
    team_most[team] = s.most;
    team_sum[team] = s.sum;
  }
  workgroupBarrier();
  var most = team_most[0];
  for (var i = 1u; i < TEAMS; i++) {
    most = max(most, team_most[i]);
  }
  var sum = Stat();
  for (var i = 0u; i < TEAMS; i++) {
    sum += team_sum[i] * exp(team_most[i] - most);
  }
  let shrink = exp(s.most - most);
  give_all(first, last, group.x, lane, scaled(s.acc0, shrink), scaled(s.acc1, shrink), scaled(s.acc2, shrink),
           scaled(s.acc3, shrink), most, sum);
}
