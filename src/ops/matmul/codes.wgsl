// 32 activations as 8-bit codes with a scale.
struct Inputs {
  low: vec4u,
  high: vec4u,
  scale: f32,
  sum: f32,  // of the activations
}
