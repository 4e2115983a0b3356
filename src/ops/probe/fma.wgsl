// Eight chains of four, which is enough to hide the latency of one.

struct Params {
  steps: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let start = vec4f(x[id.x]);
  let factor = vec4f(0.999);
  var a = start;
  var b = start + 1.0;
  var c = start + 2.0;
  var d = start + 3.0;
  var e = start + 4.0;
  var f = start + 5.0;
  var g = start + 6.0;
  var h = start + 7.0;
  for (var i = 0u; i < p.steps; i++) {
    a = fma(a, factor, start);
    b = fma(b, factor, start);
    c = fma(c, factor, start);
    d = fma(d, factor, start);
    e = fma(e, factor, start);
    f = fma(f, factor, start);
    g = fma(g, factor, start);
    h = fma(h, factor, start);
  }
  y[id.x] = dot(a + b + c + d + e + f + g + h, vec4f(1.0));
}
