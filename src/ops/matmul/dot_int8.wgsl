// Products of codes are integer dots.

alias Weights = Block32;

fn weights(row: u32, block: u32) -> Weights {
  return unpack32(block_at(row, block));
}

fn dot16(a: vec4u, b: vec4u) -> f32 {
  return f32(dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

fn dot32(w: Weights, x: Inputs) -> f32 {
  return (w.scale.x * dot16(w.low, x.low) + w.scale.y * dot16(w.high, x.high)) * x.scale + w.offset * x.sum;
}
