// Activations rounded to 8-bit codes with a scale for each 32 by every workgroup for itself: that costs less than a
// dispatch of its own, as long as the rows are few and short enough for workgroup memory.

@group(0) @binding(2) var<storage, read> x1: array<f32>;
@group(0) @binding(3) var<storage, read> x4: array<vec4f>;  // the same numbers

var<workgroup> codes: array<vec4u, BLOCKS * BATCH * 2>;
var<workgroup> scales: array<vec2f, BLOCKS * BATCH>;

fn bind_x() {
  _ = &x1;
  _ = &x4;
}

fn prepare(batch: u32, thread: u32, first: bool) {
  for (var i = thread; i < BLOCKS * BATCH; i += LANES * TEAMS) {
    let row = min(batch + i / BLOCKS, p.m - 1u) / p.share;
    let rounded = round32(row * BLOCKS + i % BLOCKS);
    codes[2u * i] = rounded.low;
    codes[2u * i + 1u] = rounded.high;
    scales[i] = vec2f(rounded.scale, rounded.sum);
  }
  workgroupBarrier();
}

fn inputs(b: u32, row: u32, block: u32) -> Inputs {
  let at = b * BLOCKS + block;
  return Inputs(codes[2u * at], codes[2u * at + 1u], scales[at].x, scales[at].y);
}
