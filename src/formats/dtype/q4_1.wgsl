// planes: d and m, 16 bytes of nibbles
fn unpack32(block: u32) -> Block32 {
  let q = w4[p.w.planes.y / 4u + block];
  let dm = unpack2x16float(w1[p.w.planes.x + block]);
  return Block32(low_nibbles(q), high_nibbles(q), dm.xx, dm.y);
}
