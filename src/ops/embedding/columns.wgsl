// Columns of a low-rank factor and their gradient, one thread an element of u [T, R].
//   read:    u[t, r] = a[r, ids[t]]
//   clear:   a = 0, one thread an element
//   scatter: a[r, c] = sum of u[t, r] over all t with ids[t] == c, written by the first such t

struct Params {
  ids: u32,
  rank: u32,
  columns: u32,
}

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

const READ = 0u;
const CLEAR = 1u;
const SCATTER = 2u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  _ = &ids;
  _ = &source;
  let index = (group.x + group.y * groups.x) * 64u + lane;
  if (STEP == CLEAR) {
    if (index < p.rank * p.columns) {
      result[index] = 0.0;
    }
    return;
  }
  let t = index / p.rank;
  let r = index % p.rank;
  if (t >= p.ids) {
    return;
  }
  let id = ids[t];
  if (STEP == READ) {
    result[index] = select(0.0, source[r * p.columns + min(id, p.columns - 1u)], id < p.columns);
    return;
  }
  if (id >= p.columns) {
    return;
  }
  var sum = 0.0;
  for (var other = 0u; other < p.ids; other++) {
    if (ids[other] == id) {
      if (other < t) {
        return;
      }
      sum += source[other * p.rank + r];
    }
  }
  result[r * p.columns + id] = sum;
}
