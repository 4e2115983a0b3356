fn dense4(row: u32, quad: u32) -> vec4f {
  let pairs = two_words(row, quad);
  return vec4f(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
}
fn dense1(row: u32, column: u32) -> f32 {
  return unpack2x16float(w1[row_start(row) + column / 2u])[column % 2u];
}
