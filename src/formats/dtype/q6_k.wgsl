// planes, regrouped: 16 bytes of nibbles and 8 bytes of upper bit pairs of each 32 elements; 16 signed scales, d.
fn unpack32(block: u32) -> Block32 {
  let q = w4[p.w.planes.x / 4u + block];
  let both = w4[p.w.planes.y / 4u + block / 2u];
  let pairs = select(both.xy, both.zw, (block & 1u) == 1u);
  let scales = i32(w1[p.w.planes.z + block / 2u] >> (16u * (block & 1u)));
  let d = half_at(p.w.planes.w, block / 8u);
  return Block32(centred(low_nibbles(q) | upper_pairs(pairs.x), 32u), centred(high_nibbles(q) | upper_pairs(pairs.y), 32u),
                 d * vec2f(f32((scales << 24u) >> 24u), f32((scales << 16u) >> 24u)), 0.0);
}

// Bits 2i and 2i + 1 of each byte become bits 4 and 5 of the bytes of word i.
fn upper_pairs(pairs: u32) -> vec4u {
  return ((vec4u(pairs) >> vec4u(0u, 2u, 4u, 6u)) & vec4u(0x03030303u)) << vec4u(4u);
}
