// dscores of the chosen experts: w (dw - sum w dw); 0 for the others. One thread does a token.

struct Params {
  tokens: u32,
  experts: u32,
  k: u32,
}

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read> dweights: array<f32>;
@group(0) @binding(3) var<storage, read_write> dscores: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let t = (group.x + group.y * groups.x) * 64u + lane;
  if (t >= p.tokens) {
    return;
  }
  for (var e = 0u; e < p.experts; e++) {
    dscores[t * p.experts + e] = 0.0;
  }
  var mean = 0.0;
  for (var s = t * p.k; s < (t + 1u) * p.k; s++) {
    mean += weights[s] * dweights[s];
  }
  for (var s = t * p.k; s < (t + 1u) * p.k; s++) {
    dscores[t * p.experts + ids[s]] = weights[s] * (dweights[s] - mean);
  }
}
