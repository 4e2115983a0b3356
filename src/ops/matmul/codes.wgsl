// 32 activations as 8-bit codes with a scale.
struct Inputs {
  low: vec4u,
  high: vec4u,
  scale: f32,
  sum: f32,  // of the rounded activations: with that of others their errors would add up where weights have an offset
}

fn pack(v: vec4f) -> u32 {
  let bytes = (vec4u(vec4i(round(v))) & vec4u(255u)) << vec4u(0u, 8u, 16u, 24u);
  return bytes.x | bytes.y | bytes.z | bytes.w;
}
fn sum_of(four: u32) -> i32 {
  return dot4I8Packed(four, 0x01010101u);
}
