fn shift_of(row: u32, i: u32) -> LastItem {
  if (!AFFINE) {
    return LastItem(0.0);
  }
  return last[select(i, row, BY_ROW)];
}

fn finish(row: u32, lane: u32, centre: Centre, inverse: f32) {
  let base = row * p.n;
  for (var i = lane; i < p.n; i += LANES) {
    y[base + i] = centred(x[base + i], centre) * inverse * factor_of(row, i) + shift_of(row, i);
  }
}
