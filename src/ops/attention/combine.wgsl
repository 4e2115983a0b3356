// The parts of each query's softmax put together. A row of LANES is a query: its lanes stand in LINES lines of COLUMNS,
// and a line takes every LINES'th part. COLUMNS is at least the width where there are several lines.

struct Params {
  queries: u32,
  width: u32,  // elements of a row
  splits: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<Element>;  // [queries, splits, width]
@group(0) @binding(1) var<storage, read> stats: array<vec2f>;    // largest score, sum of exponentials
@group(0) @binding(2) var<storage, read_write> result: array<Element>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

var<workgroup> lines: array<Element, LINES * COLUMNS>;

// Element w of part s, by its weight; nothing from `end` on.
fn weighted(first: u32, s: u32, end: u32, w: u32, most: f32) -> Element {
  let part = first + min(s, end - 1u);
  return select(0.0, exp(stats[part].x - most), s < end) * parts[part * p.width + w];
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  let query = min(row, p.queries - 1u);
  let first = query * p.splits;
  var most = -1.0e30;
  for (var s = lane; s < p.splits; s += LANES) {
    most = max(most, stats[first + s].x);
  }
  most = row_max(most, lane);
  var sum = 0.0;
  var used = 1.0;  // parts up to the last one with keys: a short history leaves many without
  for (var s = lane; s < p.splits; s += LANES) {
    let stat = stats[first + s];
    sum += exp(stat.x - most) * stat.y;
    used = select(used, f32(s + 1u), stat.y > 0.0);
  }
  let end = u32(row_max(used, lane));
  sum = row_sum(vec2f(sum, 0.0), lane).x;
  let factor = select(0.0, 1.0 / sum, sum > 0.0);

  var x = Element();
  for (var w = lane % COLUMNS; w < p.width; w += COLUMNS) {
    x = Element();
    for (var s = lane / COLUMNS; s < end; s += 4u * LINES) {  // four loads are under way together
      x += weighted(first, s, end, w, most) + weighted(first, s + LINES, end, w, most) +
           weighted(first, s + 2u * LINES, end, w, most) + weighted(first, s + 3u * LINES, end, w, most);
    }
    if (LINES == 1u && row < p.queries) {
      result[query * p.width + w] = x * factor;
    }
  }
  if (LINES > 1u) {
    lines[lane] = x;
    workgroupBarrier();
    if (lane < p.width && row < p.queries) {
      for (var i = 1u; i < LINES; i++) {
        x += lines[i * COLUMNS + lane];
      }
      result[query * p.width + lane] = x * factor;
    }
  }
  if (lane == 0u && row < p.queries) {
    lse[query] = select(0.0, most + log(sum), sum > 0.0);
  }
}
