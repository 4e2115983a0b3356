struct Hyper {  // AdamHyper
  lr: f32,
  beta1: f32,
  beta2: f32,
  eps: f32,
  weight_decay: f32,
  correction1: f32,
  correction2: f32,
  gradient_scale: f32,
}

struct Params {
  n: u32,
}

@group(0) @binding(0) var<storage, read_write> weights: array<f32>;
@group(0) @binding(1) var<storage, read_write> means: array<f32>;
@group(0) @binding(2) var<storage, read_write> squares: array<f32>;
@group(0) @binding(3) var<storage, read> gradient: array<f32>;
@group(0) @binding(4) var<storage, read> h: Hyper;
@group(0) @binding(5) var<storage, read> clip: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i >= p.n) {
    return;
  }
  var g = gradient[i] * h.gradient_scale;
  if (CLIPPED) {
    g *= clip[0];
  }
  let m = h.beta1 * means[i] + (1.0 - h.beta1) * g;
  let v = h.beta2 * squares[i] + (1.0 - h.beta2) * g * g;
  means[i] = m;
  squares[i] = v;
  let w = weights[i];
  weights[i] = w - h.lr * (m / h.correction1 / (sqrt(v / h.correction2) + h.eps) + h.weight_decay * w);
}
