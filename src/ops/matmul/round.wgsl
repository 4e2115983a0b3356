// Rounds activations to codes (codes.wgsl).

fn pack4(a: vec4f, b: vec4f, c: vec4f, d: vec4f) -> vec4u {
  return vec4u(pack(a), pack(b), pack(c), pack(d));
}

// Block number `block` of what vector() gives.
fn round32(block: u32) -> Inputs {
  var largest = vec4u();  // bits of absolute values: those of what is no number are above all numbers'
  var sum = vec4f();
  //@for i in 8
  let v$i = vector(block * 8u + $iu);
  largest = max(largest, bitcast<vec4u>(v$i) & vec4u(0x7fffffffu));
  sum += v$i;
  //@end
  let scale = bitcast<f32>(max(max(largest.x, largest.y), max(largest.z, largest.w))) / 127.0;
  let f = select(0.0, 1.0 / scale, scale > 1e-30);
  return Inputs(pack4(v0 * f, v1 * f, v2 * f, v3 * f), pack4(v4 * f, v5 * f, v6 * f, v7 * f), scale,
                dot(sum, vec4f(1.0)));
}
