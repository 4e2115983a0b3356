// Activations that quantise.wgsl has rounded.

@group(0) @binding(2) var<storage, read> codes: array<vec4u>;       // two for each block
@group(0) @binding(3) var<storage, read> scales: array<vec2f>;      // of a block: scale, sum of its activations

fn bind_x() {
  _ = &codes;
  _ = &scales;
}

struct Early {
  none: u32,
}

fn load_early(batch: u32, thread: u32) -> Early {
  return Early();
}

fn prepare(early: Early, batch: u32, thread: u32, first: bool) {}

fn inputs(b: u32, row: u32, block: u32) -> Inputs {
  let at = row * p.w.blocks + block;
  let scale = scales[at];
  return Inputs(codes[at * 2u], codes[at * 2u + 1u], scale.x, scale.y);
}
