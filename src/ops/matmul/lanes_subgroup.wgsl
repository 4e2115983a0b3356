// The sum over the lanes of a team, which is a subgroup of SUBGROUP lanes or one of the equal parts of it.

fn sum_lanes(value: f32, lane: u32, team: u32) -> f32 {
  if (LANES == SUBGROUP) {
    return subgroupAdd(value);
  }
  var sum = value;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    sum += subgroupShuffleXor(sum, step);
  }
  return sum;
}

// The sum over as many lanes as are summed at once: WIDE of them.
const WIDE = SUBGROUP;
fn sum_wide(value: f32, thread: u32) -> f32 {
  return subgroupAdd(value);
}
