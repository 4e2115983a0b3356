// to[part * m + j] = the part's share of sum_r from[r * m + j]. One workgroup for each (j, part).

struct Params {
  n: u32,
  m: u32,
  parts: u32,
  s: f32,
}

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

var<workgroup> partial: array<f32, GROUP>;

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let at = group.x + group.y * groups.x;
  if (at >= p.m * p.parts) {
    return;
  }
  let j = at % p.m;
  let part = at / p.m;
  let repeats = p.n / p.m;
  let share = (repeats + p.parts - 1u) / p.parts;
  let end = min((part + 1u) * share, repeats);
  var sum = 0.0;
  for (var r = part * share + lane; r < end; r += GROUP) {
    let v = source[r * p.m + j];
    if (SQUARES) {
      sum += (p.s * v) * (p.s * v);
    } else {
      sum += v;
    }
  }
  partial[lane] = sum;
  workgroupBarrier();
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      partial[lane] += partial[lane + half];
    }
    workgroupBarrier();
  }
  if (lane == 0u) {
    sums[at] = partial[0];
  }
}
