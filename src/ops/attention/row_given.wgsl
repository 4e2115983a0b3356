// row.wgsl with queries from memory, and all keys and values.

const OWN = false;

fn stored_range() -> vec2u {
  return key_range(0u);
}

fn load_row(g: u32, first: u32, last: u32, writes: bool, lane: u32) {
  _ = &a2;
  for (var i = lane; i < QUERIES * PADDED; i += THREADS) {
    let w = i % PADDED;
    let x = a1[min(first + i / PADDED, last) * WIDTH + min(w, WIDTH - 1u)];
    queries[i] = select(vec4f(0.0), x, w < WIDTH);
  }
}

fn own_key(piece: u32, part: u32) -> mat4x4f {
  return mat4x4f();
}
fn own_value(piece: u32, part: u32) -> mat4x4f {
  return mat4x4f();
}
