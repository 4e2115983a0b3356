// A row is done by a workgroup, which is one subgroup.

fn row_of(workgroup: u32, index: u32) -> u32 {
  return workgroup;
}

fn lane_of(index: u32) -> u32 {
  return index;
}

fn row_sum(v: vec2f, lane: u32) -> vec2f {
  return subgroupAdd(v);
}

fn row_max(v: f32, lane: u32) -> f32 {
  return subgroupMax(v);
}
