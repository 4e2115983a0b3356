// y[part * m + j] = the part's share of sum_r source[j * step_j + r * step_r].

struct Params {
  repeats: u32,
  m: u32,
  parts: u32,
  step_j: u32,
  step_r: u32,
  s: f32,
}

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let at = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (at >= p.m * p.parts) {
    return;
  }
  let j = at % p.m;
  let part = at / p.m;
  let share = (p.repeats + p.parts - 1u) / p.parts;
  let end = min((part + 1u) * share, p.repeats);
  var sum = 0.0;
  for (var r = part * share + lane; r < end; r += LANES) {
    let v = source[j * p.step_j + r * p.step_r];
    if (SQUARES) {
      sum += (p.s * v) * (p.s * v);
    } else {
      sum += v;
    }
  }
  sum = row_sum(vec2f(sum, 0.0), lane).x;
  if (lane == 0u) {
    y[at] = sum;
  }
}
