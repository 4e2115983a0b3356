// The sum over the lanes of a team, which is a subgroup.

fn sum_lanes(value: f32, lane: u32, team: u32) -> f32 {
  return subgroupAdd(value);
}
