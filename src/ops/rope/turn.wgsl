// cos and sin of pair i's angle. The kernel has `factors` and parameters position_scale and all_bits (0xffffffff);
// INVERSE[i] = base^(-2i / (2 HALF)) is written by the host.

fn turn_of(i: u32, position: u32) -> vec2f {
  // The product is rounded to f32 before it is reduced, as models compute it: without the mask a compiler may fuse it.
  let product = f32(position) * p.position_scale * INVERSE[i];
  var angle = bitcast<f32>(bitcast<u32>(product) & p.all_bits);
  if (FACTORS && factors[i] != 1.0) {
    angle /= factors[i];
  }
  return cos_sin(angle);
}
