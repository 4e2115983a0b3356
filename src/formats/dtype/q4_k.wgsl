// planes, regrouped: d, dmin and 12 bytes of scales and minima; 16 bytes of nibbles of each 32 elements.
fn unpack32(block: u32) -> Block32 {
  let sm = scale_and_minimum(w4[p.w.planes.x / 4u + block / 8u], block % 8u);
  let q = w4[p.w.planes.y / 4u + block];
  return Block32(low_nibbles(q), high_nibbles(q), sm.xx, -sm.y);
}
