// A block of a matrix of n columns, or (SPREAD) such a matrix, zero outside the block.

struct Params {
  total: u32,
  n: u32,
  row: u32,
  rows: u32,
  column: u32,
  columns: u32,
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
  if (SPREAD) {
    let r = i / p.n - p.row;  // wraps to a large number above the block
    let c = i % p.n - p.column;
    var v = 0.0;
    if (r < p.rows && c < p.columns) {
      v = x[r * p.columns + c];
    }
    y[i] = v;
  } else {
    y[i] = x[(p.row + i / p.columns) * p.n + p.column + i % p.columns];
  }
}
