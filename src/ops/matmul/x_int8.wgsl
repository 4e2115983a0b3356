// Activations as 8-bit codes with a scale for each 32 (quantise.wgsl): products are integer dots.

@group(0) @binding(2) var<storage, read> codes: array<vec4u>;       // two for each block
@group(0) @binding(3) var<storage, read> scales: array<vec2f>;      // of a block: scale, sum of its activations

alias Weights = Block32;

struct Inputs {
  low: vec4u,
  high: vec4u,
  scale: f32,
  sum: f32,
}

fn bind_x() {
  _ = &codes;
  _ = &scales;
}

fn inputs(row: u32, block: u32) -> Inputs {
  let at = row * p.w.blocks + block;
  let scale = scales[at];
  return Inputs(codes[at * 2u], codes[at * 2u + 1u], scale.x, scale.y);
}

fn weights(row: u32, block: u32) -> Weights {
  return unpack32(block_at(row, block));
}

fn dot16(a: vec4u, b: vec4u) -> f32 {
  return f32(dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

fn dot32(w: Weights, x: Inputs) -> f32 {
  return (w.scale.x * dot16(w.low, x.low) + w.scale.y * dot16(w.high, x.high)) * x.scale + w.offset * x.sum;
}
