// The sum over the LANES lanes of a team, for all of them, through workgroup memory.

var<workgroup> partial: array<f32, LANES * TEAMS>;

fn sum_lanes(value: f32, lane: u32, team: u32) -> f32 {
  if (LANES == 1u) {
    return value;
  }
  let at = team * LANES + lane;
  workgroupBarrier();
  partial[at] = value;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (lane < step) {
      partial[at] += partial[at + step];
    }
  }
  workgroupBarrier();
  return partial[team * LANES];
}

const WIDE = LANES;
fn sum_wide(value: f32, thread: u32) -> f32 {
  return sum_lanes(value, thread % LANES, thread / LANES);
}
