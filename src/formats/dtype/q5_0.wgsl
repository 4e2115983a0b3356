// planes: d, fifth bits, 16 bytes of nibbles
fn unpack32(block: u32) -> Block32 {
  let q = w4[p.w.planes.z / 4u + block];
  let fifth = w1[p.w.planes.y + block];
  let d = half_at(p.w.planes.x, block);
  return Block32(centred(low_nibbles(q) | fifth_bits(fifth), 16u),
                 centred(high_nibbles(q) | fifth_bits(fifth >> 16u), 16u), vec2f(d), 0.0);
}
