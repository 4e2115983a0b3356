// Draws one of the best logits of a row (draw.h): a workgroup does a row, its first thread the part that goes in order.
// From the host: MOST, and keep(row, place), which writes `token` where there is one.

struct Params {
  rows: u32,
  k: u32,
  barred: u32,
}
struct Rule {
  uniform: f32,
  temperature: f32,
  truncation_temperature: f32,
  top_p: f32,
  min_p: f32,
  count: f32,
}

@group(0) @binding(0) var<storage, read> best: array<vec2u>;
@group(0) @binding(1) var<storage, read> barred: array<u32>;
@group(0) @binding(2) var<storage, read> rules: array<Rule>;
@group(0) @binding(3) var<storage, read_write> result: array<vec2u>;
@group(0) @binding(5) var<uniform> p: Params;

const THREADS = 64u;

var<workgroup> logits: array<f32, MOST>;  // of those that may be drawn, best first
var<workgroup> places: array<u32, MOST>;  // where they stand in the row
var<workgroup> allowed: array<u32, MOST>;

fn may_be_drawn(place: u32) -> u32 {
  for (var i = 0u; i < p.barred; i++) {
    if (barred[i] == place) {
      return 0u;
    }
  }
  return 1u;
}

fn weight(i: u32, temperature: f32) -> f32 {
  return exp((logits[i] - logits[0]) / temperature);
}

fn drawn(count: u32, rule: Rule) -> u32 {
  if (rule.temperature <= 0.0) {
    return places[0];
  }
  var total = 0.0;
  for (var i = 0u; i < count; i++) {
    total += weight(i, rule.truncation_temperature);
  }
  var kept = 0u;
  var sum = 0.0;
  for (; kept < count; kept++) {
    let w = weight(kept, rule.truncation_temperature);
    if (kept > 0u && (w < rule.min_p || (rule.top_p < 1.0 && sum >= rule.top_p * total))) {
      break;
    }
    sum += w;
  }
  total = 0.0;
  for (var i = 0u; i < kept; i++) {
    total += weight(i, rule.temperature);
  }
  var rest = rule.uniform * total;
  for (var i = 0u; i < kept; i++) {
    rest -= weight(i, rule.temperature);
    if (rest < 0.0) {
      return places[i];
    }
  }
  return places[kept - 1u];
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
  let row = group.x + group.y * groups.x;
  if (row >= p.rows) {
    return;
  }
  for (var i = thread; i < p.k; i += THREADS) {
    let pair = best[row * p.k + i];
    result[row * (p.k + 1u) + i] = pair;
    allowed[i] = may_be_drawn(pair.y);
  }
  workgroupBarrier();
  if (thread != 0u) {
    return;
  }
  let rule = rules[row];
  var count = 0u;
  for (var i = 0u; i < p.k && f32(count) < rule.count; i++) {
    if (allowed[i] == 1u) {
      logits[count] = bitcast<f32>(best[row * p.k + i].x);
      places[count] = i;
      count++;
    }
  }
  if (count == 0u) {
    places[0] = 0u;
  }
  let pair = best[row * p.k + drawn(max(count, 1u), rule)];
  result[row * (p.k + 1u) + p.k] = pair;
  keep(row, pair.y);
}
