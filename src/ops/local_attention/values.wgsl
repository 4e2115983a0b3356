// One thread does one element of the result.

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 64u + lane;
  let row = p.heads * p.d;
  let t = i / row;
  if (t >= p.rows) {
    return;
  }
  let first = i / p.d * p.span;
  var most = NONE;
  for (var c = 0u; c < p.span; c++) {
    most = max(most, scores[first + c]);
  }
  var sum = 0.0;
  var total = 0.0;
  for (var c = 0u; c < p.span; c++) {
    let key = t + c - p.past;
    if (key < p.rows) {
      let weight = exp(scores[first + c] - most);
      total += weight;
      sum += weight * v[key * row + i % row];
    }
  }
  y[i] = sum / total;  // a row sees itself at least
}
