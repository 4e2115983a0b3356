// Codes that a workgroup makes of ITEMS vectors, by round_lanes.wgsl or round_shared.wgsl.

var<workgroup> codes: array<vec4u, ITEMS / 4u>;
var<workgroup> scales: array<vec2f, ITEMS / 8u>;

fn codes_of(block: u32) -> Inputs {
  return Inputs(codes[2u * block], codes[2u * block + 1u], scales[block].x, scales[block].y);
}
