// sum = (residual + rms_norm(x, w)) * scale, normed = rms_norm(sum, w_next), a row at a time.

struct Params {
  rows: u32,
  n: u32,  // items of a row
  width: f32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> residual: array<Item>;
@group(0) @binding(1) var<storage, read> x: array<Item>;
@group(0) @binding(2) var<storage, read> w: array<Item>;
@group(0) @binding(3) var<storage, read> w_next: array<Item>;
@group(0) @binding(4) var<storage, read> factor: array<f32>;
@group(0) @binding(5) var<storage, read_write> sum: array<Item>;
@group(0) @binding(6) var<storage, read_write> normed: array<Item>;
@group(0) @binding(7) var<uniform> p: Params;

fn inverse_root(squares: f32) -> f32 {
  return 1.0 / sqrt(squares / p.width + p.eps);
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (row >= p.rows) {
    return;
  }
  let base = row * p.n;
  var squares = 0.0;
  for (var i = lane; i < p.n; i += LANES) {
    let v = x[base + i];
    squares += total(v * v);
  }
  let inverse = inverse_root(row_sum(vec2f(squares, 0.0), lane).x);
  var scale = 1.0;
  if (SCALED) {
    scale = factor[0];
  }
  squares = 0.0;
  for (var i = lane; i < p.n; i += LANES) {
    let at = base + i;
    let v = (residual[at] + x[at] * inverse * w[i]) * scale;
    sum[at] = v;
    squares += total(v * v);
  }
  if (!NEXT) {
    return;
  }
  let inverse_next = inverse_root(row_sum(vec2f(squares, 0.0), lane).x);
  for (var i = lane; i < p.n; i += LANES) {
    let at = base + i;
    normed[at] = sum[at] * inverse_next * w_next[i];
  }
}
