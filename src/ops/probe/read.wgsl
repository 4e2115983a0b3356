// Every thread sums its share of x, four loads under way at a time.

struct Params {
  n: u32,  // items of x
  threads: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
  var sums = array<vec4f, 4>();
  let step = p.threads;
  var i = id.x;
  for (; i + 3u * step < p.n; i += 4u * step) {
    sums[0] += x[i];
    sums[1] += x[i + step];
    sums[2] += x[i + 2u * step];
    sums[3] += x[i + 3u * step];
  }
  for (; i < p.n; i += step) {
    sums[0] += x[i];
  }
  y[id.x] = dot(sums[0] + sums[1] + sums[2] + sums[3], vec4f(1.0));
}
