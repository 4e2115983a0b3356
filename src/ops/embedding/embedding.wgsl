// Rows of a table. One thread does 32 elements. A part of the table writes the rows that it has; the first part also
// writes zeros for ids that are no row.

struct Params {
  w: Weight,
  ids: u32,     // how many
  first: u32,   // row of the whole table at which this part begins
  rows: u32,    // of the whole table
  scale: f32,
}

@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  bind_weight();
  let index = (group.x + group.y * groups.x) * 64u + lane;
  let t = index / p.w.blocks;
  let block = index % p.w.blocks;
  if (t >= p.ids) {
    return;
  }
  let id = ids[t];
  let none = id >= p.rows;
  let row = id - p.first;
  if (select(row >= p.w.rows || (id < p.first), p.first != 0u, none)) {
    return;
  }
  let values = decode32(row, block);
  let at = t * p.w.columns + block * 32u;
  let count = min(p.w.columns - block * 32u, 32u);
  for (var i = 0u; i < count; i++) {
    y[at + i] = select(values.quads[i / 4u][i % 4u] * p.scale, 0.0, none);
  }
}
