// ITEMS vectors of a workgroup's activations become 8-bit codes with a scale for each 32, through workgroup memory.

var<workgroup> kept: array<vec4f, ITEMS>;

fn keep(i: u32, x: vec4f) {
  if (i < ITEMS) {
    kept[i] = x;
  }
}

fn vector(i: u32) -> vec4f {
  return kept[i];
}

fn settle(thread: u32) {
  workgroupBarrier();
  for (var i = thread; i < ITEMS / 8u; i += LANES * TEAMS) {
    let rounded = round32(i);
    codes[2u * i] = rounded.low;
    codes[2u * i + 1u] = rounded.high;
    scales[i] = vec2f(rounded.scale, rounded.sum);
  }
  workgroupBarrier();
}
