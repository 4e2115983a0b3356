// planes: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, d. Sub-block j is quarter r of half h.
fn unpack32(block: u32) -> Block32 {
  let whole = block / 8u;
  let h = (block / 4u) & 1u;
  let r = block & 3u;
  let nibbles = p.w.planes.x / 4u + whole * 8u + h * 4u + (r & 1u) * 2u;
  let pairs = p.w.planes.y / 4u + whole * 4u + h * 2u;
  let shift = vec4u(4u * (r >> 1u));
  let two = vec4u(0x03030303u);
  let low = low_nibbles(w4[nibbles] >> shift) | (((w4[pairs] >> vec4u(2u * r)) & two) << vec4u(4u));
  let high = low_nibbles(w4[nibbles + 1u] >> shift) | (((w4[pairs + 1u] >> vec4u(2u * r)) & two) << vec4u(4u));
  let scales = i32(w1[p.w.planes.z + whole * 4u + h * 2u + (r >> 1u)] >> (16u * (r & 1u)));
  let d = half_at(p.w.planes.w, whole);
  return Block32(centred(low, 32u), centred(high, 32u), d * vec2f(f32((scales << 24u) >> 24u), f32((scales << 16u) >> 24u)),
                 0.0);
}
