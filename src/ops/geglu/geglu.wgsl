// y = f(gate) * up, and what gate and up receive from dy. f and its slope are appended to this text.

struct Params {
  total: u32,
  n: u32,
  gate_stride: u32,
  gate_column: u32,
  up_stride: u32,
  up_column: u32,
}

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.total) {
    return;
  }
  let row = i / p.n;
  let column = i % p.n;
  let g = gate[row * p.gate_stride + p.gate_column + column];
  let u = up[row * p.up_stride + p.up_column + column];
  if (RESULT == 0u) {
    y[i] = gate_of(g) * u;
  } else if (RESULT == 1u) {
    y[i] = dy[i] * gate_slope(g) * u;
  } else {
    y[i] = dy[i] * gate_of(g);
  }
}
