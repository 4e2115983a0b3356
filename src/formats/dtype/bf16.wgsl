// The upper halves of f32.
fn dense4(row: u32, quad: u32) -> vec4f {
  let pairs = two_words(row, quad).xxyy;
  return bitcast<vec4f>(select(pairs << vec4u(16u), pairs & vec4u(0xffff0000u), vec4<bool>(false, true, false, true)));
}
fn dense1(row: u32, column: u32) -> f32 {
  let pair = w1[row_start(row) + column / 2u];
  return bitcast<f32>(select(pair << 16u, pair & 0xffff0000u, column % 2u == 1u));
}
