// With g = dy * factor and h the normalised x: dx = (g - mean(g) - h mean(g h)) / deviation.
fn finish(row: u32, lane: u32, centre: Centre, inverse: f32) {
  let base = row * p.n;
  var sums = vec2f(0.0);
  for (var i = lane; i < p.n; i += LANES) {
    let g = last[base + i] * factor_of(row, i);
    sums += vec2f(total(g), total(g * (centred(x[base + i], centre) * inverse)));
  }
  sums = row_sum(sums, lane) / p.width;
  for (var i = lane; i < p.n; i += LANES) {
    let h = centred(x[base + i], centre) * inverse;
    y[base + i] = (last[base + i] * factor_of(row, i) - sums.x - h * sums.y) * inverse;
  }
}
