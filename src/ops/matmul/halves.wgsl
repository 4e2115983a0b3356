// Rows of x as 16-bit floats in [-2, 2) times a power of two for each row, so that neither large activations nor small
// gradients leave their range. A workgroup does one row; rows are padded with zeros to whole blocks of 32.

struct Params {
  rows: u32,
  columns: u32,
  blocks: u32,
  pad: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> halves: array<vec2u>;  // [rows][blocks][8]
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;    // [rows]
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> most: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = group.x + group.y * groups.x;
  if (row >= p.rows) {
    return;
  }
  let start = row * p.columns;
  var largest = 0.0;
  for (var i = lane; i < p.columns; i += 256u) {
    largest = max(largest, abs(x[start + i]));
  }
  most[lane] = largest;
  workgroupBarrier();
  for (var half = 128u; half > 0u; half /= 2u) {
    if (lane < half) {
      most[lane] = max(most[lane], most[lane + half]);
    }
    workgroupBarrier();
  }
  // 2^e with most < 2^(e + 1); rows of zeros, and those beyond what can be scaled, stay as they are
  let exponent = clamp(i32((bitcast<u32>(most[0]) >> 23u) & 255u) - 127, -126, 127);
  let usable = most[0] > 0.0 && exponent > -126 && exponent < 127;
  let scale = select(1.0, bitcast<f32>(u32(exponent + 127) << 23u), usable);
  let factor = 1.0 / scale;
  for (var quad = lane; quad < p.blocks * 8u; quad += 256u) {
    var v = vec4f();
    for (var i = 0u; i < 4u; i++) {
      if (quad * 4u + i < p.columns) {
        v[i] = x[start + quad * 4u + i] * factor;
      }
    }
    halves[row * p.blocks * 8u + quad] = vec2u(pack2x16float(v.xy), pack2x16float(v.zw));
  }
  if (lane == 0u) {
    scales[row] = scale;
  }
}
