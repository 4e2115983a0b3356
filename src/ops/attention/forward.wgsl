// What the forward job writes beside its result: SPLIT, the largest score and the sum of exponentials of each row's
// part, of which combine.wgsl makes the whole; else the logarithm of the sum.

@group(0) @binding(4) var<storage, read_write> stats: array<f32>;

fn write_stats(at: u32, most: f32, sum: f32) {
  if (SPLIT) {
    stats[2u * at] = most;
    stats[2u * at + 1u] = sum;
  } else {
    stats[at] = select(0.0, most + log(sum), sum > 0.0);
  }
}

// The factor that makes the weighted sum an average.
fn average(sum: f32) -> f32 {
  if (SPLIT) {
    return 1.0;
  }
  return select(0.0, 1.0 / sum, sum > 0.0);
}

fn finish(at: u32, most: f32, sum: f32) -> f32 {
  write_stats(at, most, sum);
  return average(sum);
}

fn stat_of(query: u32) -> vec2f {
  return vec2f(0.0);
}
fn gradient_weight(score: f32, other: f32, stat: vec2f) -> f32 {
  return 0.0;
}
