// RMS norm of rows and its gradient. One workgroup a row; GROUP == 1: one thread, no barriers.

struct Params {
  rows: u32,
  n: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

var<workgroup> partial: array<vec2f, GROUP>;

fn weight(i: u32) -> f32 {
  if (WEIGHTED) {
    return w[i];
  }
  return 1.0;
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = group.x + group.y * groups.x;
  if (row >= p.rows) {
    return;
  }
  let base = row * p.n;
  // sum of x^2 and, backwards, of dy w x
  var sums = vec2f(0.0);
  for (var i = lane; i < p.n; i += GROUP) {
    let v = x[base + i];
    sums.x += v * v;
    if (BACKWARD) {
      sums.y += dy[base + i] * weight(i) * v;
    }
  }
  if (GROUP > 1) {
    partial[lane] = sums;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
      if (lane < half) {
        partial[lane] += partial[lane + half];
      }
      workgroupBarrier();
    }
    sums = partial[0];
  }
  let n = f32(p.n);
  let inverse = 1.0 / sqrt(sums.x / n + p.eps);
  for (var i = lane; i < p.n; i += GROUP) {
    let at = base + i;
    if (BACKWARD) {
      y[at] = weight(i) * dy[at] * inverse - x[at] * (sums.y / n) * inverse * inverse * inverse;
    } else {
      y[at] = x[at] * inverse * weight(i);
    }
  }
}
