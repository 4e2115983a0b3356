// A row is done by a workgroup; its lanes meet in workgroup memory.

var<workgroup> sums: array<vec2f, GROUP>;
var<workgroup> peaks: array<f32, GROUP>;

fn row_of(workgroup: u32, index: u32) -> u32 {
  return workgroup;
}

fn lane_of(index: u32) -> u32 {
  return index;
}

fn row_sum(v: vec2f, lane: u32) -> vec2f {
  sums[lane] = v;
  for (var width = GROUP / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) {
      sums[lane] += sums[lane + width];
    }
  }
  workgroupBarrier();
  let result = sums[0];
  workgroupBarrier();
  return result;
}

fn row_max(v: f32, lane: u32) -> f32 {
  peaks[lane] = v;
  for (var width = GROUP / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) {
      peaks[lane] = max(peaks[lane], peaks[lane + width]);
    }
  }
  workgroupBarrier();
  let result = peaks[0];
  workgroupBarrier();
  return result;
}
