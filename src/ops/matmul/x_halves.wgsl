// Activations as 16-bit floats that halves.wgsl has made.

@group(0) @binding(2) var<storage, read> x_halves: array<vec2u>;  // [m][x_blocks][8]
@group(0) @binding(3) var<storage, read> x_scales: array<f32>;    // [m]

fn bind_x() {
  _ = &x_halves;
  _ = &x_scales;
}

// Terms 4 quad to 4 quad + 3 of the product, zeros behind the last: of x's row, from `first` on if TRANSPOSED.
fn halves4(row: u32, quad: u32, terms: u32) -> vec4<f16> {
  if (quad * 4u >= terms) {
    return vec4<f16>();
  }
  let blocks = (p.x_stride + 31u) / 32u;
  return bitcast<vec4<f16>>(x_halves[row * blocks * 8u + select(0u, p.first / 4u, TRANSPOSED) + quad]);
}
