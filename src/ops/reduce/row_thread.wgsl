// A lane does a row alone.

fn row_of(workgroup: u32, index: u32) -> u32 {
  return workgroup * GROUP + index;
}

fn lane_of(index: u32) -> u32 {
  return 0u;
}

fn row_sum(v: vec2f, lane: u32) -> vec2f {
  return v;
}

fn row_max(v: f32, lane: u32) -> f32 {
  return v;
}
