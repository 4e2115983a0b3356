// One row of activations made of a step of the residual stream and rounded to 8-bit codes, by every workgroup for itself:
//   sum = (residual + rms_norm(block, norm_weight)) * factor, x = rms_norm(sum, next_weight), or sum without NEXT.
// The first workgroup keeps the sum.

@group(0) @binding(2) var<storage, read> residual: array<vec4f>;
@group(0) @binding(3) var<storage, read> block: array<vec4f>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4f>;
@group(0) @binding(5) var<storage, read> next_weight: array<vec4f>;
@group(0) @binding(6) var<storage, read> factor: array<f32>;  // SCALED: of the sum; else of the result (result_gelu.wgsl)
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> kept: array<vec4f>;
@group(0) @binding(9) var<uniform> p: Params;

const ids = array<u32, 1>(0u);  // there are no experts
const ITEMS = 8u * BLOCKS;

var<workgroup> x4: array<vec4f, ITEMS>;
var<workgroup> codes: array<vec4u, BLOCKS * 2>;
var<workgroup> scales: array<vec2f, BLOCKS>;
var<workgroup> teams: array<f32, TEAMS>;

fn bind_product() {
  bind_weight();
  _ = &next_weight;
  _ = &factor;
}

fn finish(at: u32, sum: f32) {
  y[at] = sum;
}

// 1 / the root of the mean square, for all threads.
fn inverse_root(squares: f32, thread: u32) -> f32 {
  let mine = sum_lanes(squares, thread % LANES, thread / LANES);
  if (thread % LANES == 0u) {
    teams[thread / LANES] = mine;
  }
  workgroupBarrier();
  var all = 0.0;
  for (var t = 0u; t < TEAMS; t++) {
    all += teams[t];
  }
  workgroupBarrier();
  return 1.0 / sqrt(all / f32(4u * ITEMS) + p.eps);
}

fn prepare(batch: u32, thread: u32, first: bool) {
  var squares = 0.0;
  for (var i = thread; i < ITEMS; i += LANES * TEAMS) {
    squares += dot(block[i], block[i]);
  }
  let inverse = inverse_root(squares, thread);
  var scale = 1.0;
  if (SCALED) {
    scale = factor[0];
  }
  squares = 0.0;
  for (var i = thread; i < ITEMS; i += LANES * TEAMS) {
    let v = (residual[i] + block[i] * inverse * norm_weight[i]) * scale;
    if (first) {
      kept[i] = v;
    }
    x4[i] = v;
    squares += dot(v, v);
  }
  if (NEXT) {
    let inverse_next = inverse_root(squares, thread);
    for (var i = thread; i < ITEMS; i += LANES * TEAMS) {
      x4[i] *= inverse_next * next_weight[i];
    }
  }
  workgroupBarrier();
  for (var i = thread; i < BLOCKS; i += LANES * TEAMS) {
    let rounded = round32(i);
    codes[2u * i] = rounded.low;
    codes[2u * i + 1u] = rounded.high;
    scales[i] = vec2f(rounded.scale, rounded.sum);
  }
  workgroupBarrier();
}

fn inputs(b: u32, row: u32, block_index: u32) -> Inputs {
  return Inputs(codes[2u * block_index], codes[2u * block_index + 1u], scales[block_index].x, scales[block_index].y);
}
