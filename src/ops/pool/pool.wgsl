// y[row, column, c] = mean of x over a square of k x k. Columns past the end are the last one.

struct Params {
  total: u32,  // elements of y
  width: u32,  // of x
  y_width: u32,
  channels: u32,
  k: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 64u + lane;
  if (i >= p.total) {
    return;
  }
  let c = i % p.channels;
  let column = i / p.channels % p.y_width;
  let row = i / p.channels / p.y_width;
  var sum = 0.0;
  for (var dy = 0u; dy < p.k; dy++) {
    for (var dx = 0u; dx < p.k; dx++) {
      sum += x[((row * p.k + dy) * p.width + min(column * p.k + dx, p.width - 1u)) * p.channels + c];
    }
  }
  y[i] = sum / f32(p.k * p.k);
}
