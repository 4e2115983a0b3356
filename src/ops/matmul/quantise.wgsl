// Rounds activations to 8-bit codes with a scale for each 32. One thread does a block.

struct Params {
  blocks: u32,
}

@group(0) @binding(0) var<storage, read> x4: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> codes: array<vec4u>;
@group(0) @binding(2) var<storage, read_write> scales: array<vec2f>;
@group(0) @binding(3) var<uniform> p: Params;

fn vector(i: u32) -> vec4f {
  return x4[i];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let block = (group.x + group.y * groups.x) * 64u + lane;
  if (block >= p.blocks) {
    return;
  }
  let rounded = round32(block);
  codes[block * 2u] = rounded.low;
  codes[block * 2u + 1u] = rounded.high;
  scales[block] = vec2f(rounded.scale, rounded.sum);
}
