// Activations rounded to 8-bit codes by every workgroup for itself (round_lanes.wgsl): that costs less than a dispatch of
// its own, as long as the rows are few and short enough for workgroup memory. EARLY vectors of a thread, perhaps not all,
// are loaded before all else.

@group(0) @binding(2) var<storage, read> x1: array<f32>;
@group(0) @binding(3) var<storage, read> x4: array<vec4f>;  // the same numbers

const ITEMS = 8u * BLOCKS * BATCH;

struct Early {
  none: u32,
  //@for i in EARLY
  x$i: vec4f,
  //@end
}

fn bind_x() {
  _ = &x1;
  _ = &x4;
}

fn item(batch: u32, i: u32) -> vec4f {
  let at = min(i, ITEMS - 1u);
  let row = min(batch + at / (8u * BLOCKS), p.m - 1u) / p.share;
  return x4[row * 8u * BLOCKS + at % (8u * BLOCKS)];
}

fn load_early(batch: u32, thread: u32) -> Early {
  var early: Early;
  //@for i in EARLY
  early.x$i = item(batch, thread + $iu * LANES * TEAMS);
  //@end
  return early;
}

fn prepare(early: Early, batch: u32, thread: u32, first: bool) {
  //@for i in EARLY
  keep(thread + $iu * LANES * TEAMS, early.x$i);
  //@end
  for (var i = EARLY * LANES * TEAMS; i < ITEMS; i += LANES * TEAMS) {
    keep(i + thread, item(batch, i + thread));
  }
  settle(thread);
}

fn inputs(b: u32, row: u32, block: u32) -> Inputs {
  return codes_of(b * BLOCKS + block);
}
