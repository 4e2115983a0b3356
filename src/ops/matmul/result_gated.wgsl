// A result of rows.wgsl is gelu(gate) * up, of two products: the rows of `up` follow those of `gate`.

fn second_row(row: u32) -> u32 {
  return row + p.n;
}

fn finish_row(at: u32, sums: array<f32, PRODUCTS>) {
  y[at] = gelu(sums[0]) * sums[1];
}
