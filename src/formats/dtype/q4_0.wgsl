// planes: d, 16 bytes of nibbles
fn unpack32(block: u32) -> Block32 {
  let q = w4[p.w.planes.y / 4u + block];
  let d = half_at(p.w.planes.x, block);
  return Block32(centred(low_nibbles(q), 8u), centred(high_nibbles(q), 8u), vec2f(d), 0.0);
}
