// planes: d, 32 signed bytes
fn unpack32(block: u32) -> Block32 {
  let at = p.w.planes.y / 4u + block * 2u;
  return Block32(w4[at], w4[at + 1u], vec2f(half_at(p.w.planes.x, block)), 0.0);
}
