// Rows of x to their slots of a cache. One thread writes one word: an f32 or, HALVES, two f16.

struct Params {
  threads: u32,
  words: u32,  // of a slot
  slots: u32,
}

@group(0) @binding(0) var<storage, read_write> cache: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> positions: array<u32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.x + group.y * groups.x) * 64u + lane;
  if (i >= p.threads) {
    return;
  }
  let at = positions[i / p.words] % p.slots * p.words + i % p.words;
  if (HALVES) {
    cache[at] = pack2x16float(clamp(vec2f(x[2u * i], x[2u * i + 1u]), vec2f(-65504.0), vec2f(65504.0)));
  } else {
    cache[at] = bitcast<u32>(x[i]);
  }
}
