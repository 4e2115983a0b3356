// Rounds activations to codes (codes.wgsl).

fn pack4(a: vec4f, b: vec4f, c: vec4f, d: vec4f) -> vec4u {
  return vec4u(pack(a), pack(b), pack(c), pack(d));
}

// Block number `block` of what vector() gives.
fn round32(block: u32) -> Inputs {
  var largest = vec4u();  // bits of absolute values: those of what is no number are above all numbers'
  //@for i in 8
  let v$i = vector(block * 8u + $iu);
  largest = max(largest, bitcast<vec4u>(v$i) & vec4u(0x7fffffffu));
  //@end
  let scale = bitcast<f32>(max(max(largest.x, largest.y), max(largest.z, largest.w))) / 127.0;
  let f = select(0.0, 1.0 / scale, scale > 1e-30);
  let low = pack4(v0 * f, v1 * f, v2 * f, v3 * f);
  let high = pack4(v4 * f, v5 * f, v6 * f, v7 * f);
  let sums = vec4i(sum_of(low.x) + sum_of(high.x), sum_of(low.y) + sum_of(high.y), sum_of(low.z) + sum_of(high.z),
                   sum_of(low.w) + sum_of(high.w));
  return Inputs(low, high, scale, f32(sums.x + sums.y + sums.z + sums.w) * scale);
}
