// SWAP: y[c, b, d] = x[b, c, d]. Else every element of x `c` times.

struct Params {
  total: u32,  // elements of y
  b: u32,
  c: u32,
  d: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.total) {
    return;
  }
  if (SWAP) {
    let d = i % p.d;
    let b = i / p.d % p.b;
    let c = i / (p.d * p.b) % p.c;
    y[i] = x[(b * p.c + c) * p.d + d];
  } else {
    y[i] = x[i / p.c];
  }
}
