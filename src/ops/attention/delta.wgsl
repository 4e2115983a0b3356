// What the gradients need of each query: lse, and delta = out . dout. One thread does one query.

struct Params {
  threads: u32,
  width: u32,
}

@group(0) @binding(0) var<storage, read> out: array<Element>;
@group(0) @binding(1) var<storage, read> dout: array<Element>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read_write> stats: array<vec2f>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let query = (group.x + group.y * groups.x) * 64u + lane;
  if (query >= p.threads) {
    return;
  }
  var delta = 0.0;
  for (var w = query * p.width; w < (query + 1u) * p.width; w++) {
    delta += inner(out[w], dout[w]);
  }
  stats[query] = vec2f(lse[query], delta);
}
