fn dense4(row: u32, quad: u32) -> vec4f {
  let at = row_start(row) + quad * 4u;
  if (ALIGNED) {
    return bitcast<vec4f>(w4[at / 4u]);
  }
  return bitcast<vec4f>(vec4u(w1[at], w1[at + 1u], w1[at + 2u], w1[at + 3u]));
}
fn dense1(row: u32, column: u32) -> f32 {
  return bitcast<f32>(w1[row_start(row) + column]);
}
