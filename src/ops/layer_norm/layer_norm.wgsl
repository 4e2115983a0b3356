// Normalises rows to mean 0 and variance 1, then scales and shifts; and the gradient of that for x.
// BY_ROW: one gamma and beta a row, gamma counted from 1; else one for each element of a row.

struct Params {
  rows: u32,
  n: u32,  // items of a row
  width: f32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<Item>;
@group(0) @binding(1) var<storage, read> gamma: array<Factor>;
@group(0) @binding(2) var<storage, read> last: array<LastItem>;  // beta, or dy
@group(0) @binding(3) var<storage, read_write> y: array<Item>;
@group(0) @binding(4) var<uniform> p: Params;

fn factor_of(row: u32, i: u32) -> Factor {
  if (!AFFINE) {
    return Factor(1.0);
  }
  if (BY_ROW) {
    return gamma[row] + 1.0;
  }
  return gamma[i];
}

// A row's mean, as its first element and the distance from that.
struct Centre {
  first: f32,
  distance: f32,
}

fn centred(v: Item, centre: Centre) -> Item {
  return (v - centre.first) - centre.distance;
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (row >= p.rows) {
    return;
  }
  let base = row * p.n;
  // Summed as distances from the first element: where the mean is large, a sum of the elements loses what tells them apart.
  let first = pick(x[base], 0u);
  var sum = 0.0;
  for (var i = lane; i < p.n; i += LANES) {
    sum += total(x[base + i] - first);
  }
  let centre = Centre(first, row_sum(vec2f(sum, 0.0), lane).x / p.width);
  var squares = 0.0;
  for (var i = lane; i < p.n; i += LANES) {
    let v = centred(x[base + i], centre);
    squares += total(v * v);
  }
  let inverse = 1.0 / sqrt(row_sum(vec2f(squares, 0.0), lane).x / p.width + p.eps);
  finish(row, lane, centre, inverse);
}
