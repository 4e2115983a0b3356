// Each sample from the frames whose windows reach it.

struct Params {
  n: u32,
  hop: u32,
  bins: u32,
  frames: u32,
  samples: u32,
}

@group(0) @binding(0) var<storage, read> numbers: array<vec2f>;  // spectrum.wgsl
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 64u + lane;
  if (i >= p.samples) {
    return;
  }
  let turns = p.frames * p.bins;
  let at = i + p.n / 2u;
  var frame = 0u;
  if (at >= p.n) {
    frame = (at - p.n) / p.hop + 1u;
  }
  var sum = 0.0;
  var weights = 0.0;
  for (; frame < p.frames && frame * p.hop <= at; frame++) {
    let t = at - frame * p.hop;
    var value = 0.0;
    var angle = 0u;  // k t mod n, whole: no accuracy is lost to large angles
    for (var k = 0u; k < p.bins; k++) {
      let turn = numbers[turns + angle];
      let c = numbers[frame * p.bins + k];
      value += c.x * turn.x - c.y * turn.y;
      angle += t;
      if (angle >= p.n) {
        angle -= p.n;
      }
    }
    let window = 0.5 - 0.5 * numbers[turns + t].x;
    sum += value * window;
    weights += window * window;
  }
  if (weights > 1e-11) {
    sum /= weights;
  }
  y[i] = sum;
}
