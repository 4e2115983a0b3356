// y[t] = sum_s weights[t, s] dscale[ids[t, s]] slots[t, s], one thread an element; backwards dslots the same way and
// then, as a second dispatch, dweights, one thread a pair.

struct Params {
  tokens: u32,
  slots: u32,
  n: u32,
  experts: u32,
}

@group(0) @binding(0) var<storage, read> slots: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read> dscale: array<f32>;
@group(0) @binding(4) var<storage, read> dy: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

const FORWARD = 0u;
const SLOTS = 1u;
const WEIGHTS = 2u;

fn share(pair: u32) -> f32 {
  if (!SCALED) {
    return 1.0;
  }
  let id = ids[pair];
  return select(0.0, dscale[min(id, p.experts - 1u)], id < p.experts);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  _ = &slots;
  _ = &ids;
  _ = &weights;
  _ = &dscale;
  _ = &dy;
  let index = (group.x + group.y * groups.x) * 64u + lane;
  if (STEP == FORWARD) {
    let t = index / p.n;
    let i = index % p.n;
    if (t >= p.tokens) {
      return;
    }
    var sum = 0.0;
    for (var pair = t * p.slots; pair < (t + 1u) * p.slots; pair++) {
      sum += weights[pair] * share(pair) * slots[pair * p.n + i];
    }
    y[index] = sum;
    return;
  }
  let pair = select(index, index / p.n, STEP == SLOTS);
  if (pair >= p.tokens * p.slots) {
    return;
  }
  let row = pair / p.slots * p.n;
  if (STEP == SLOTS) {
    y[index] = weights[pair] * share(pair) * dy[row + index % p.n];
    return;
  }
  var sum = 0.0;
  for (var i = 0u; i < p.n; i++) {
    sum += dy[row + i] * slots[pair * p.n + i];
  }
  y[pair] = share(pair) * sum;
}
