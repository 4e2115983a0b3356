// Parameters that all kernels of products share.
//   forward:    y[m, n] = scale * sum_r x[m, r] w[row0 + n, r] + plus[m, n]
//   transposed: y[m, n] = scale * sum_r a(m, r) w[row0 + r, n] + plus[m, n], a = x[m, r], or x[r, m] (X_TRANSPOSED)
// A dispatch handles one part of w: its rows [row0, row0 + rows), which are rows `first` and on of the product's range.
// Bindings 2 and 3 are x in one of three forms: x_f32.wgsl, x_int8.wgsl, x_rounded.wgsl; or x is made of a residual
// stream, by x_residual.wgsl, which has bindings of its own.

struct Params {
  w: Weight,
  m: u32,         // rows of y
  n: u32,         // its columns
  row0: u32,      // first row in this part of w
  rows: u32,      // its rows
  first: u32,     // where they stand in the whole range
  x_stride: u32,  // between rows of x
  scale: f32,
  plus: u32,      // 0: nothing is added; 1: `plus`; 2: what y holds, the sum over earlier parts
  tiles: u32,     // of the dimension that is counted first
  // experts: y[pair] = w[ids[pair]] x[pair / share]; each has `rows` rows of w
  experts: u32,
  share: u32,     // pairs that read one row of x
  part: u32,      // row of the whole w at which this part begins
  splits: u32,    // runs that the terms are cut into (tiles.wgsl)
  // x_residual.wgsl
  eps: f32,
  column: u32,    // of the factor of result_gelu.wgsl
}
