// Products row by row of w: few rows of x, and experts. A team of LANES threads does ROWS rows of w for BATCH rows of x,
// each lane every LANES-th block; TEAMS teams make a workgroup. Of long rows PARTS teams do every PARTS-th run of LANES
// blocks each. LANES == 1 needs no barrier.

var<workgroup> of_team: array<f32, TEAMS>;

// The sum over all that share a row.
fn sum_parts(value: f32, lane: u32, team: u32) -> f32 {
  let mine = sum_lanes(value, lane, team);
  if (PARTS == 1u) {
    return mine;
  }
  workgroupBarrier();
  if (lane == 0u) {
    of_team[team] = mine;
  }
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < PARTS; i++) {
    sum += of_team[team / PARTS * PARTS + i];
  }
  return sum;
}

struct Place {
  row: u32,     // of this part of w
  at: u32,      // of y, in the pair's or batch's first row
  used: bool,
}

// Where output j belongs; for experts also whether this part has it.
fn place(batch: u32, j: u32) -> Place {
  if (EXPERTS) {
    let id = ids[batch];
    let row = id * p.n + j - p.part;
    let here = select((row < p.w.rows), p.part == 0u, id >= p.experts);
    return Place(row, batch * p.n + j, here && j < p.n);
  }
  return Place(p.row0 + j, batch * p.n + p.first + j, j < p.rows);
}

@compute @workgroup_size(LANES, TEAMS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_id) local: vec3u, @builtin(local_invocation_index) thread: u32) {
  bind_product();
  let index = group.x + group.y * groups.x;
  let batch = index / p.tiles * BATCH;
  if (batch >= p.m) {
    return;
  }
  prepare(batch, thread, index % p.tiles == 0u);
  let j0 = ((index % p.tiles) * TEAMS + local.y) / PARTS * ROWS;
  var rows: array<u32, ROWS * PRODUCTS>;
  for (var r = 0u; r < ROWS; r++) {
    rows[r] = place(batch, j0 + r).row;
    if (PRODUCTS == 2u) {
      rows[ROWS * (PRODUCTS - 1u) + r] = second_row(rows[r]);
    }
  }
  var sums: array<f32, ROWS * PRODUCTS * BATCH>;
  for (var block = local.y % PARTS * LANES + local.x; block < p.w.blocks; block += LANES * PARTS) {
    var x: array<Inputs, BATCH>;
    for (var b = 0u; b < BATCH; b++) {
      x[b] = inputs(b, min(batch + b, p.m - 1u) / p.share, block);
    }
    for (var r = 0u; r < ROWS * PRODUCTS; r++) {
      let w = weights(rows[r], block);
      for (var b = 0u; b < BATCH; b++) {
        sums[r * BATCH + b] += dot32(w, x[b]);
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    for (var b = 0u; b < BATCH; b++) {
      var found: array<f32, PRODUCTS>;
      for (var f = 0u; f < PRODUCTS; f++) {
        found[f] = sum_parts(sums[(f * ROWS + r) * BATCH + b], local.x, local.y);
      }
      let to = place(batch, j0 + r);
      if (local.x == (r * BATCH + b) % LANES && local.y % PARTS == 0u && to.used && batch + b < p.m) {
        if (EXPERTS && ids[batch] >= p.experts) {
          y[to.at] = 0.0;
        } else {
          finish_row(to.at + b * p.n, found);
        }
      }
    }
  }
}
