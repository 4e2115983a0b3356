// y = scale * the sum over parts + plus. One thread writes one element.

struct Params {
  threads: u32,
  columns: u32,   // that the parts have
  splits: u32,
  y_columns: u32,
  first: u32,     // column of y where they begin
  plus: u32,      // 0: nothing is added; 1: `plus`; 2: what y holds
  scale: f32,
  pad: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<f32>;  // [rows, splits, columns]
@group(0) @binding(1) var<storage, read> plus: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let thread = (group.x + group.y * groups.x) * 64u + lane;
  if (thread >= p.threads) {
    return;
  }
  let row = thread / p.columns;
  let column = thread % p.columns;
  var sum = 0.0;
  for (var s = 0u; s < p.splits; s++) {
    sum += parts[(row * p.splits + s) * p.columns + column];
  }
  let at = row * p.y_columns + p.first + column;
  var value = p.scale * sum;
  if (p.plus == 1u) {
    value += plus[at];
  } else if (p.plus == 2u) {
    value += y[at];
  }
  y[at] = value;
}
