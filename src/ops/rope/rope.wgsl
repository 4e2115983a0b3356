// Rotary positions. One thread turns one pair of all heads of a row, or copies one element that does not turn.

struct Params {
  rows: u32,
  heads: u32,
  d: u32,
  position_scale: f32,
  sign: f32,
  all_bits: u32,  // 0xffffffff
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> other_positions: array<u32>;  // of the second segment
@group(0) @binding(3) var<storage, read> factors: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let per_row = p.d - HALF * SEGMENTS;
  let thread = (group.x + group.y * groups.x) * 64u + lane;
  let row = thread / per_row;
  if (row >= p.rows) {
    return;
  }
  let j = thread % per_row;
  let base = row * p.heads * p.d;
  if (j >= HALF * SEGMENTS) {
    for (var head = 0u; head < p.heads; head++) {
      let at = base + head * p.d + HALF * SEGMENTS + j;
      y[at] = x[at];
    }
    return;
  }
  var position = positions[row];
  if (j >= HALF) {
    position = other_positions[row];
  }
  let i = j % HALF;
  let turn = turn_of(i, position) * vec2f(1.0, p.sign);
  for (var head = 0u; head < p.heads; head++) {
    let at = base + head * p.d + j / HALF * 2u * HALF + i;
    let a = x[at];
    let b = x[at + HALF];
    y[at] = a * turn.x - b * turn.y;
    y[at + HALF] = a * turn.y + b * turn.x;
  }
}
