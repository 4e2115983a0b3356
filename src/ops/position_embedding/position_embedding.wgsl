// y = h + the table's rows of two positions. One thread does 32 elements.

struct Params {
  w: Weight,
  rows: u32,       // of h
  positions: u32,  // rows of each half of the table
}

@group(0) @binding(2) var<storage, read> h: array<f32>;
@group(0) @binding(3) var<storage, read> pos_x: array<u32>;
@group(0) @binding(4) var<storage, read> pos_y: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  bind_weight();
  let index = (group.x + group.y * groups.x) * 64u + lane;
  let n = index / p.w.blocks;
  let block = index % p.w.blocks;
  if (n >= p.rows) {
    return;
  }
  var sum: Values32;
  if (pos_x[n] < p.positions) {
    sum = decode32(pos_x[n], block);
  }
  if (pos_y[n] < p.positions) {
    let other = decode32(p.positions + pos_y[n], block);
    for (var i = 0u; i < 8u; i++) {
      sum.quads[i] += other.quads[i];
    }
  }
  let at = n * p.w.columns + block * 32u;
  let count = min(p.w.columns - block * 32u, 32u);
  for (var i = 0u; i < count; i++) {
    y[at + i] = h[at + i] + sum.quads[i / 4u][i % 4u];
  }
}
