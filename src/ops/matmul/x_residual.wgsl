// One row of activations made of a step of the residual stream and rounded to 8-bit codes, by every workgroup for itself
// (round_lanes.wgsl):
//   sum = (residual + rms_norm(block, norm_weight)) * factor, x = rms_norm(sum, next_weight), or sum without NEXT.
// The first workgroup keeps the sum. A thread has EARLY vectors, and loads all that it needs of them before all else.

@group(0) @binding(2) var<storage, read> residual: array<vec4f>;
@group(0) @binding(3) var<storage, read> block: array<vec4f>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4f>;
@group(0) @binding(5) var<storage, read> next_weight: array<vec4f>;
@group(0) @binding(6) var<storage, read> factor: array<f32>;  // SCALED: of the sum; else of the result (result_gelu.wgsl)
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> stream: array<vec4f>;
@group(0) @binding(9) var<uniform> p: Params;

const ids = array<u32, 1>(0u);  // there are no experts
const ITEMS = 8u * BLOCKS;

struct Early {
  none: u32,
  //@for i in EARLY
  residual$i: vec4f,
  block$i: vec4f,
  weight$i: vec4f,
  next$i: vec4f,
  //@end
}

const WIDES = LANES * TEAMS / WIDE;
var<workgroup> wides: array<f32, 2u * WIDES>;

fn bind_product() {
  bind_weight();
  _ = &next_weight;
  _ = &factor;
}

fn finish(at: u32, sum: f32) {
  y[at] = sum;
}

fn load_early(batch: u32, thread: u32) -> Early {
  var early: Early;
  //@for i in EARLY
  let at$i = min(thread + $iu * LANES * TEAMS, ITEMS - 1u);
  early.block$i = block[at$i];
  early.residual$i = residual[at$i];
  early.weight$i = norm_weight[at$i];
  if (NEXT) {
    early.next$i = next_weight[at$i];
  }
  //@end
  return early;
}

// 1 / the root of the mean square, for all threads; `half` of `wides` is used.
fn inverse_root(squares: f32, thread: u32, half: u32) -> f32 {
  let mine = sum_wide(squares, thread);
  if (thread % WIDE == 0u) {
    wides[half * WIDES + thread / WIDE] = mine;
  }
  workgroupBarrier();
  var all = 0.0;
  for (var i = 0u; i < WIDES; i++) {
    all += wides[half * WIDES + i];
  }
  return 1.0 / sqrt(all / f32(4u * ITEMS) + p.eps);
}

// The square of vector i, which there may not be.
fn square(i: u32, x: vec4f) -> f32 {
  return select(0.0, dot(x, x), i < ITEMS);
}

fn prepare(early: Early, batch: u32, thread: u32, first: bool) {
  var squares = 0.0;
  //@for i in EARLY
  let at$i = thread + $iu * LANES * TEAMS;
  squares += square(at$i, early.block$i);
  //@end
  let inverse = inverse_root(squares, thread, 0u);
  var scale = 1.0;
  if (SCALED) {
    scale = factor[0];
  }
  squares = 0.0;
  //@for i in EARLY
  var x$i = (early.residual$i + early.block$i * inverse * early.weight$i) * scale;
  if (first && at$i < ITEMS) {
    stream[at$i] = x$i;
  }
  squares += square(at$i, x$i);
  //@end
  if (NEXT) {
    let inverse_next = inverse_root(squares, thread, 1u);
    //@for i in EARLY
    x$i *= inverse_next * early.next$i;
    //@end
  }
  //@for i in EARLY
  keep(at$i, x$i);
  //@end
  settle(thread);
}

fn inputs(b: u32, row: u32, block_index: u32) -> Inputs {
  return codes_of(block_index);
}
