// The parts of each query's softmax put together. One thread writes one element.

struct Params {
  threads: u32,
  width: u32,  // elements of a row
  splits: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<Element>;  // [queries, splits, width]
@group(0) @binding(1) var<storage, read> stats: array<vec2f>;    // largest score, sum of exponentials
@group(0) @binding(2) var<storage, read_write> result: array<Element>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let thread = (group.x + group.y * groups.x) * 64u + lane;
  if (thread >= p.threads) {
    return;
  }
  let query = thread / p.width;
  let w = thread % p.width;
  var most = -1.0e30;
  for (var s = 0u; s < p.splits; s++) {
    most = max(most, stats[query * p.splits + s].x);
  }
  var sum = 0.0;
  var x = Element();
  for (var s = 0u; s < p.splits; s++) {
    let part = query * p.splits + s;
    if (stats[part].y > 0.0) {
      let weight = exp(stats[part].x - most);
      sum += weight * stats[part].y;
      x += weight * parts[part * p.width + w];
    }
  }
  result[thread] = x * select(0.0, 1.0 / sum, sum > 0.0);
  if (w == 0u) {
    lse[query] = select(0.0, most + log(sum), sum > 0.0);
  }
}
