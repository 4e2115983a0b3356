// Frames of bins as complex numbers, scaled for the inverse transform; after them n turns of the unit circle.

struct Params {
  n: u32,
  hop: u32,
  bins: u32,
  frames: u32,
  samples: u32,
}

@group(0) @binding(0) var<storage, read> magnitude: array<f32>;
@group(0) @binding(1) var<storage, read> phase: array<f32>;
@group(0) @binding(2) var<storage, read_write> numbers: array<vec2f>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 64u + lane;
  let count = p.frames * p.bins;
  if (i >= count + p.n) {
    return;
  }
  if (i >= count) {
    numbers[i] = cos_sin(6.283185307 * f32(i - count) / f32(p.n));
    return;
  }
  let frame = i / p.bins;
  let bin = i % p.bins;
  let at = bin * p.frames + frame;
  var scale = 2.0;  // a bin stands for two of the full transform, but for the first and the middle one
  if (bin == 0u || bin * 2u == p.n) {
    scale = 1.0;
  }
  numbers[i] = magnitude[at] * scale / f32(p.n) * cos_sin(phase[at]);
}
