// What the gradient jobs read beside their tensors: of each query lse, the logarithm of its sum of exponentials, and
// delta = out . dout = sum_t p_t (dout . v_t).

@group(0) @binding(4) var<storage, read> stats: array<vec2f>;

fn stat_of(query: u32) -> vec2f {
  return stats[query];
}

fn gradient_weight(score: f32, other: f32, stat: vec2f) -> f32 {
  let probability = exp(p.scale * score - stat.x);
  if (JOB == GRADIENT_V) {
    return probability;
  }
  return p.scale * probability * (other - stat.y);
}

fn finish(at: u32, most: f32, sum: f32) -> f32 {
  return 1.0;
}
