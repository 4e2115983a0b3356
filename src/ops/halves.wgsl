// Rows of x as 16-bit floats in [-2, 2) times a power of two for each row, so that neither large activations nor small
// gradients leave their range. Rows are padded with zeros to whole blocks of 32.

struct Params {
  rows: u32,
  columns: u32,  // items of a row
  blocks: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Item>;
@group(0) @binding(1) var<storage, read_write> halves: array<vec2u>;  // [rows][blocks][8]
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;    // [rows]
@group(0) @binding(3) var<uniform> p: Params;

// Numbers 4 quad to 4 quad + 3 of the row that begins at item `start`.
fn four(start: u32, quad: u32) -> vec4f {
  var v = vec4f();
  for (var i = 0u; i < 4u / ITEM; i++) {
    let at = quad * (4u / ITEM) + i;
    if (at < p.columns) {
      let item = x[start + at];
      for (var k = 0u; k < ITEM; k++) {
        v[i * ITEM + k] = pick(item, k);
      }
    }
  }
  return v;
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (row >= p.rows) {
    return;
  }
  let start = row * p.columns;
  var most = 0.0;
  for (var i = lane; i < p.columns; i += LANES) {
    most = max(most, largest(abs(x[start + i])));
  }
  most = row_max(most, lane);
  // 2^e with most < 2^(e + 1); rows of zeros, and those beyond what can be scaled, stay as they are
  let exponent = clamp(i32((bitcast<u32>(most) >> 23u) & 255u) - 127, -126, 127);
  let usable = most > 0.0 && exponent > -126 && exponent < 127;
  let scale = select(1.0, bitcast<f32>(u32(exponent + 127) << 23u), usable);
  let factor = 1.0 / scale;
  for (var quad = lane; quad < p.blocks * 8u; quad += LANES) {
    let v = four(start, quad) * factor;
    halves[row * p.blocks * 8u + quad] = vec2u(pack2x16float(v.xy), pack2x16float(v.zw));
  }
  if (lane == 0u) {
    scales[row] = scale;
  }
}
