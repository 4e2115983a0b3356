// y = f(a, b), or dy times a slope of f. The function is appended to this text.

struct Params {
  n: u32,
  m: u32,    // b's length
  row: u32,  // n / m
  s: f32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.n) {
    return;
  }
  var other = i % p.m;
  if (BY_ROW) {
    other = i / p.row;
  }
  var v = function_of(a[i], b[other], p.s);
  if (BACKWARD) {
    v *= dy[i];
  }
  y[i] = v;
}
