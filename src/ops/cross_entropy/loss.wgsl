// log sum exp - logit of the target, 0 where the target is no token.

struct Params {
  rows: u32,
  vocabulary: u32,
}

@group(0) @binding(0) var<storage, read> stats: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = (group.x + group.y * groups.x) * 64u + lane;
  if (row >= p.rows) {
    return;
  }
  var v = 0.0;
  if (targets[row] < p.vocabulary) {
    v = log(stats[3u * row + 1u]) + (stats[3u * row] - stats[3u * row + 2u]);
  }
  loss[row] = v;
}
