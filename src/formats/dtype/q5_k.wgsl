// planes, regrouped: d, dmin and 12 bytes of scales and minima; fifth bits and 16 bytes of nibbles of each 32 elements.
fn unpack32(block: u32) -> Block32 {
  let sm = scale_and_minimum(w4[p.w.planes.x / 4u + block / 8u], block % 8u);
  let fifth = w1[p.w.planes.y + block];
  let q = w4[p.w.planes.z / 4u + block];
  return Block32(low_nibbles(q) | fifth_bits(fifth), high_nibbles(q) | fifth_bits(fifth >> 16u), sm.xx, -sm.y);
}
