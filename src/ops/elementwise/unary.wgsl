// y = f(x), or dy * f'(x). The function is appended to this text.

struct Params {
  n: u32,
  a: f32,
  b: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.n) {
    return;
  }
  var v = function_of(x[i], p.a, p.b);
  if (BACKWARD) {
    v *= dy[i];
  }
  y[i] = v;
}
