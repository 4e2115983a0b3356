// One thread does the score of one pair.

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> relative: array<f32>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let thread = (group.x + group.y * groups.x) * 64u + lane;
  let query = thread / p.span;
  let t = query / p.heads;
  if (t >= p.rows) {
    return;
  }
  let key = t + thread % p.span - p.past;  // wraps to a large number before the start
  if (key >= p.rows) {
    scores[thread] = NONE;
    return;
  }
  let head = query % p.heads * p.d;
  let own = query * p.d;
  let other = key * p.heads * p.d + head;
  let distance = t - key;  // a large number for later keys
  var s = 0.0;
  for (var e = 0u; e < p.d; e++) {
    s += q[own + e] * k[other + e];
  }
  if (distance < p.distances) {
    let row = distance * p.heads * p.d + head;
    for (var e = 0u; e < p.d; e++) {
      s += q[own + e] * relative[row + e];
    }
  }
  if (p.cap > 0.0) {
    s = p.cap * safe_tanh(s / p.cap);
  }
  scores[thread] = s;
}
