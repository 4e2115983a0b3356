// weight * (softmax - onehot) of a tile of the vocabulary; zeros where the target is no token.

struct Params {
  total: u32,
  width: u32,  // of the tile
  start: u32,
  vocabulary: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> stats: array<f32>;
@group(0) @binding(2) var<storage, read> targets: array<u32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> d: array<f32>;
@group(0) @binding(5) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.total) {
    return;
  }
  let row = i / p.width;
  let t = targets[row];
  var v = 0.0;
  if (t < p.vocabulary) {
    v = exp(logits[i] - stats[3u * row]) / stats[3u * row + 1u];
    if (i % p.width + p.start == t) {
      v -= 1.0;
    }
    if (WEIGHTED) {
      v *= weights[row];
    }
  }
  d[i] = v;
}
