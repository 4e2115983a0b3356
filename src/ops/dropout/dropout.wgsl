// Keeps an element where its hash is at least `bar`.

struct Params {
  n: u32,
  stream: u32,
  bar: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> seed: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

fn mixed(value: u32) -> u32 {
  var h = value;
  h ^= h >> 16u;
  h *= 0x7feb352du;
  h ^= h >> 15u;
  h *= 0x846ca68bu;
  return h ^ (h >> 16u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.n) {
    return;
  }
  let key = mixed(seed[0] ^ mixed(p.stream));
  y[i] = select(0.0, x[i] * p.scale, mixed(i ^ key) >= p.bar);
}
