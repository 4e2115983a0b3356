// planes: d, dmin and 12 bytes of scales and minima; 128 bytes of nibbles. Sub-blocks 2c and 2c + 1 share 32 bytes.
fn unpack32(block: u32) -> Block32 {
  let whole = block / 8u;
  let j = block % 8u;
  let sm = scale_and_minimum(w4[p.w.planes.x / 4u + whole], j);
  let at = p.w.planes.y / 4u + whole * 8u + (j & 6u);
  let shift = vec4u(4u * (j & 1u));
  return Block32(low_nibbles(w4[at] >> shift), low_nibbles(w4[at + 1u] >> shift), sm.xx, -sm.y);
}
