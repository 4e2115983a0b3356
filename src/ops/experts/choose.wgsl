// The k largest of each row of scores and their shares. A workgroup does a token, a thread an expert: its place is the
// number of scores that come before it, of equal ones those with lower numbers.

struct Params {
  tokens: u32,
  experts: u32,
  k: u32,
}

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> row: array<f32, 256>;
var<workgroup> chosen: array<u32, 16>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let t = group.x + group.y * groups.x;
  if (t >= p.tokens) {
    return;
  }
  let mine = scores[min(t * p.experts + lane, p.tokens * p.experts - 1u)];
  row[lane] = mine;
  workgroupBarrier();
  if (lane < p.experts) {
    var place = 0u;
    for (var e = 0u; e < p.experts; e++) {
      place += select(0u, 1u, row[e] > mine || (row[e] == mine && e < lane));
    }
    if (place < p.k) {
      chosen[place] = lane;
    }
  }
  workgroupBarrier();
  if (lane < p.k) {
    let best = row[chosen[0]];
    var sum = 0.0;
    for (var s = 0u; s < p.k; s++) {
      sum += exp(row[chosen[s]] - best);
    }
    ids[t * p.k + lane] = chosen[lane];
    weights[t * p.k + lane] = exp(row[chosen[lane]] - best) / sum;
  }
}
