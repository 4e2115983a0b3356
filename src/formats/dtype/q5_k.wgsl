// planes: d, dmin and 12 bytes of scales and minima; 32 bytes of fifth bits, bit j of each for sub-block j; 128 bytes of
// nibbles. Sub-blocks 2c and 2c + 1 share 32 bytes of nibbles.
fn unpack32(block: u32) -> Block32 {
  let whole = block / 8u;
  let j = block % 8u;
  let sm = scale_and_minimum(w4[p.w.planes.x / 4u + whole], j);
  let at = p.w.planes.z / 4u + whole * 8u + (j & 6u);
  let fifth = p.w.planes.y / 4u + whole * 2u;
  let shift = vec4u(4u * (j & 1u));
  let one = vec4u(0x01010101u);
  return Block32(low_nibbles(w4[at] >> shift) | (((w4[fifth] >> vec4u(j)) & one) << vec4u(4u)),
                 low_nibbles(w4[at + 1u] >> shift) | (((w4[fifth + 1u] >> vec4u(j)) & one) << vec4u(4u)), sm.xx, -sm.y);
}
