// planes: d and m, fifth bits, 16 bytes of nibbles
fn unpack32(block: u32) -> Block32 {
  let q = w4[p.w.planes.z / 4u + block];
  let fifth = w1[p.w.planes.y + block];
  let dm = unpack2x16float(w1[p.w.planes.x + block]);
  return Block32(low_nibbles(q) | fifth_bits(fifth), high_nibbles(q) | fifth_bits(fifth >> 16u), dm.xx, dm.y);
}
