// Of each row of logits: the largest, the sum of exp(logit - largest), the target's; with those of earlier tiles.

struct Params {
  rows: u32,
  n: u32,      // items of a row
  width: u32,  // numbers of a row
  start: u32,  // token of the first column
}

@group(0) @binding(0) var<storage, read> logits: array<Item>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read> before: array<f32>;
@group(0) @binding(3) var<storage, read_write> stats: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

const LOWEST: f32 = -3.0e38;

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (row >= p.rows) {
    return;
  }
  let base = row * p.n;
  var peak = LOWEST;
  for (var i = lane; i < p.n; i += LANES) {
    peak = max(peak, largest(logits[base + i]));
  }
  peak = row_max(peak, lane);
  var sum = 0.0;
  for (var i = lane; i < p.n; i += LANES) {
    sum += total(exp(logits[base + i] - peak));
  }
  sum = row_sum(vec2f(sum, 0.0), lane).x;
  if (lane != 0u) {
    return;
  }
  var of_target = 0.0;
  let column = targets[row] - p.start;  // wraps to a large number before the tile
  if (column < p.width) {
    of_target = pick(logits[base + column / ITEM], column % ITEM);
  }
  if (!FIRST) {
    let earlier = before[3u * row];
    let both = max(peak, earlier);
    sum = sum * exp(max(peak - both, -100.0)) + before[3u * row + 1u] * exp(max(earlier - both, -100.0));
    peak = both;
    of_target += before[3u * row + 2u];
  }
  stats[3u * row] = peak;
  stats[3u * row + 1u] = sum;
  stats[3u * row + 2u] = of_target;
}
