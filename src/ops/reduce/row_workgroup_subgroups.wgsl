// A row is done by a workgroup; its subgroups meet in workgroup memory.

var<workgroup> sums: array<vec2f, GROUP>;
var<workgroup> peaks: array<f32, GROUP>;

fn row_of(workgroup: u32, index: u32) -> u32 {
  return workgroup;
}

fn lane_of(index: u32) -> u32 {
  return index;
}

fn row_sum(v: vec2f, lane: u32) -> vec2f {
  let size = subgroupAdd(1u);
  let mine = subgroupAdd(v);
  if (subgroupElect()) {
    sums[lane / size] = mine;
  }
  workgroupBarrier();
  var result = sums[0];
  for (var i = 1u; i < GROUP / size; i++) {
    result += sums[i];
  }
  workgroupBarrier();
  return result;
}

fn row_max(v: f32, lane: u32) -> f32 {
  let size = subgroupAdd(1u);
  let mine = subgroupMax(v);
  if (subgroupElect()) {
    peaks[lane / size] = mine;
  }
  workgroupBarrier();
  var result = peaks[0];
  for (var i = 1u; i < GROUP / size; i++) {
    result = max(result, peaks[i]);
  }
  workgroupBarrier();
  return result;
}
