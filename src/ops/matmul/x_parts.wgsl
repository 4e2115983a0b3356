// Activations that attention has left in SPLITS parts of each head (attention/combine.wgsl says what they are), put
// together and rounded to 8-bit codes by every workgroup for itself.

@group(0) @binding(2) var<storage, read> parts: array<vec4f>;  // [heads, SPLITS, HEAD_WIDTH]
@group(0) @binding(3) var<storage, read> stats: array<vec2f>;  // [heads, SPLITS]: largest score, sum of exponentials

const ITEMS = 8u * BLOCKS;

struct Early {
  none: u32,
}

fn bind_x() {
  _ = &parts;
  _ = &stats;
}

fn load_early(batch: u32, thread: u32) -> Early {
  return Early();
}

fn item(i: u32) -> vec4f {
  let at = min(i, ITEMS - 1u);
  let first = at / HEAD_WIDTH * SPLITS;
  //@for s in SPLITS
  let stat$s = stats[first + $su];
  let part$s = parts[(first + $su) * HEAD_WIDTH + at % HEAD_WIDTH];
  //@end
  var most = stat0.x;
  //@for s in SPLITS
  most = max(most, stat$s.x);
  //@end
  var sum = 0.0;
  var x = vec4f();
  //@for s in SPLITS
  if (stat$s.y > 0.0) {  // a part without keys has nothing written
    let weight$s = exp(stat$s.x - most);
    sum += weight$s * stat$s.y;
    x += weight$s * part$s;
  }
  //@end
  return x * select(0.0, 1.0 / sum, sum > 0.0);
}

fn prepare(early: Early, batch: u32, thread: u32, first: bool) {
  for (var i = 0u; i < ITEMS; i += LANES * TEAMS) {
    keep(i + thread, item(i + thread));
  }
  settle(thread);
}

fn inputs(b: u32, row: u32, block: u32) -> Inputs {
  return codes_of(block);
}
