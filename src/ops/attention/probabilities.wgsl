// The probability of each slot for each query. One thread writes one.

@group(0) @binding(4) var<storage, read> lse: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  _ = &a2;
  _ = &b2;
  let thread = (group.x + group.y * groups.x) * 64u + lane;
  if (thread >= p.threads) {
    return;
  }
  let query = thread / p.slots;
  let slot = thread % p.slots;
  let range = key_range(query / p.heads);
  var probability = 0.0;
  if (slot < range.y) {
    // the latest visible position that lies in the slot
    let t = range.y - 1u - (range.y - 1u - slot) % p.slots;
    if (t >= range.x) {
      let at = key_at(t, query % p.heads / p.group) * p.width;
      var score = 0.0;
      for (var w = 0u; w < p.width; w++) {
        score += inner(a1[query * p.width + w], wide(b1[at + w]));
      }
      probability = exp(p.scale * score - lse[query]);
    }
  }
  result[thread] = probability;
}
