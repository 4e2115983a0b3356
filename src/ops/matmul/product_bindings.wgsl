// Bindings of all products but those of x_residual.wgsl.

@group(0) @binding(4) var<storage, read> plus: array<f32>;
@group(0) @binding(5) var<storage, read> ids: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
@group(0) @binding(7) var<uniform> p: Params;

fn bind_product() {
  bind_weight();
  bind_x();
  _ = &plus;
  _ = &ids;
}

fn finish(at: u32, sum: f32) {
  var value = sum * p.scale;
  if (p.plus == 1u) {
    value += plus[at];
  } else if (p.plus == 2u) {
    value += y[at];
  }
  y[at] = value;
}
