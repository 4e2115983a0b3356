// y[i] = a[i] * b[i mod m] or a[i] + s * b[i mod m].

struct Params {
  n: u32,
  m: u32,
  s: f32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.n) {
    return;
  }
  let other = b[i % p.m];
  if (MULTIPLY) {
    y[i] = a[i] * other;
  } else {
    y[i] = a[i] + p.s * other;
  }
}
