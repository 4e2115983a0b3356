// Rounds activations to codes (codes.wgsl).

fn pack(v: vec4f) -> u32 {
  let bytes = (vec4u(vec4i(round(v))) & vec4u(255u)) << vec4u(0u, 8u, 16u, 24u);
  return bytes.x | bytes.y | bytes.z | bytes.w;
}

fn pack4(a: vec4f, b: vec4f, c: vec4f, d: vec4f) -> vec4u {
  return vec4u(pack(a), pack(b), pack(c), pack(d));
}

// Block number `block` of x4.
fn round32(block: u32) -> Inputs {
  var v: array<vec4f, 8>;
  var largest = vec4u();  // bits of absolute values: those of what is no number are above all numbers'
  var sum = vec4f();
  for (var i = 0u; i < 8u; i++) {
    v[i] = x4[block * 8u + i];
    largest = max(largest, bitcast<vec4u>(v[i]) & vec4u(0x7fffffffu));
    sum += v[i];
  }
  let scale = bitcast<f32>(max(max(largest.x, largest.y), max(largest.z, largest.w))) / 127.0;
  let f = select(0.0, 1.0 / scale, scale > 1e-30);
  return Inputs(pack4(v[0] * f, v[1] * f, v[2] * f, v[3] * f), pack4(v[4] * f, v[5] * f, v[6] * f, v[7] * f), scale,
                dot(sum, vec4f(1.0)));
}
