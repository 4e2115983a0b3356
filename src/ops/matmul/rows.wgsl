// Products row by row of w: few rows of x, and experts. A team of LANES threads does ROWS rows of w for BATCH rows of x,
// each lane every LANES-th block; TEAMS teams make a workgroup. Of long rows PARTS teams do every PARTS-th run of LANES
// blocks each. LANES == 1 needs no barrier. WEIGHT_ROWS is ROWS for each product of a result.

const PRODUCTS = WEIGHT_ROWS / ROWS;
const STEP = LANES * PARTS;

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
    let row = id * p.rows + j - p.part;
    let here = select((row < p.w.rows), p.part == 0u, id >= p.experts);
    return Place(row, batch * p.n + j, here && j < p.n);
  }
  return Place(p.row0 + j, batch * p.n + p.first + j, j < p.rows);
}

// The row of w that is number i of a team's.
fn weight_row(batch: u32, j0: u32, i: u32) -> u32 {
  let row = place(batch, j0 + i % ROWS).row;
  if (i >= ROWS) {
    return second_row(row);
  }
  return row;
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
  let j0 = ((index % p.tiles) * TEAMS + local.y) / PARTS * ROWS;
  let first = local.y % PARTS * LANES + local.x;

  let early = load_early(batch, thread);
  //@for i in WEIGHT_ROWS
  let row$i = weight_row(batch, j0, $iu);
  //@end
  prepare(early, batch, thread, index % p.tiles == 0u);

  var sums: array<f32, WEIGHT_ROWS * BATCH>;
  for (var block = first; block < p.w.blocks; block += STEP) {
    //@for b in BATCH
    let x$b = inputs($bu, min(batch + $bu, p.m - 1u) / p.share, block);
    //@end
    //@for i in WEIGHT_ROWS
    let w$i = weights(row$i, block);
    //@for b in BATCH
    sums[$iu * BATCH + $bu] += dot32(w$i, x$b);
    //@end
    //@end
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
