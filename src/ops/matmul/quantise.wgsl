// Rounds activations to 8-bit codes with a scale for each 32. One thread does a block.

struct Params {
  blocks: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> codes: array<vec4u>;
@group(0) @binding(2) var<storage, read_write> scales: array<vec2f>;
@group(0) @binding(3) var<uniform> p: Params;

fn pack(v: vec4f) -> u32 {
  let bytes = (vec4u(vec4i(round(v))) & vec4u(255u)) << vec4u(0u, 8u, 16u, 24u);
  return bytes.x | bytes.y | bytes.z | bytes.w;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let block = (group.x + group.y * groups.x) * 64u + lane;
  if (block >= p.blocks) {
    return;
  }
  var v: array<vec4f, 8>;
  var largest = vec4f();
  var sum = vec4f();
  for (var i = 0u; i < 8u; i++) {
    v[i] = x[block * 8u + i];
    largest = max(largest, abs(v[i]));
    sum += v[i];
  }
  let scale = max(max(largest.x, largest.y), max(largest.z, largest.w)) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 1e-30);
  codes[block * 2u] = vec4u(pack(v[0] * inverse), pack(v[1] * inverse), pack(v[2] * inverse), pack(v[3] * inverse));
  codes[block * 2u + 1u] = vec4u(pack(v[4] * inverse), pack(v[5] * inverse), pack(v[6] * inverse), pack(v[7] * inverse));
  scales[block] = vec2f(scale, dot(sum, vec4f(1.0)));
}
