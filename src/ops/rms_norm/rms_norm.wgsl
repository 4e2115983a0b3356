// RMS norm of rows, and its gradient.

struct Params {
  rows: u32,
  n: u32,  // items of a row
  width: f32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<Item>;
@group(0) @binding(1) var<storage, read> w: array<Item>;
@group(0) @binding(2) var<storage, read> dy: array<Item>;
@group(0) @binding(3) var<storage, read_write> y: array<Item>;
@group(0) @binding(4) var<uniform> p: Params;

fn weight(i: u32) -> Item {
  if (WEIGHTED) {
    return w[i];
  }
  return Item(1.0);
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (row >= p.rows) {
    return;
  }
  let base = row * p.n;
  // sum of x^2 and, backwards, of dy w x
  var sums = vec2f(0.0);
  for (var i = lane; i < p.n; i += LANES) {
    let v = x[base + i];
    sums.x += total(v * v);
    if (BACKWARD) {
      sums.y += total(dy[base + i] * weight(i) * v);
    }
  }
  sums = row_sum(sums, lane);
  let inverse = 1.0 / sqrt(sums.x / p.width + p.eps);
  let pull = sums.y / p.width * inverse * inverse * inverse;
  for (var i = lane; i < p.n; i += LANES) {
    let at = base + i;
    if (BACKWARD) {
      y[at] = weight(i) * dy[at] * inverse - x[at] * pull;
    } else {
      y[at] = x[at] * inverse * weight(i);
    }
  }
}
