// The k largest of each row of scores and their shares. One thread does a token.

struct Params {
  tokens: u32,
  experts: u32,
  k: u32,
}

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

const MOST = 16u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let t = (group.x + group.y * groups.x) * 64u + lane;
  if (t >= p.tokens) {
    return;
  }
  // sorted insertion; of equal scores the earlier one stays ahead
  var best: array<f32, MOST>;
  var chosen: array<u32, MOST>;
  var count = 0u;
  for (var e = 0u; e < p.experts; e++) {
    let score = scores[t * p.experts + e];
    if (count == p.k && score <= best[count - 1u]) {
      continue;
    }
    count = min(count + 1u, p.k);
    var at = count - 1u;
    while (at > 0u && score > best[at - 1u]) {
      best[at] = best[at - 1u];
      chosen[at] = chosen[at - 1u];
      at--;
    }
    best[at] = score;
    chosen[at] = e;
  }
  var sum = 0.0;
  for (var s = 0u; s < p.k; s++) {
    sum += exp(best[s] - best[0]);
  }
  for (var s = 0u; s < p.k; s++) {
    ids[t * p.k + s] = chosen[s];
    weights[t * p.k + s] = exp(best[s] - best[0]) / sum;
  }
}
