// Products of many rows by the matrix units of a GPU, of 16 x 16 x 16: 16-bit factors, sums in 32 bits. A workgroup of
// four subgroups does a tile of 32 MT x 128 results, a subgroup 16 MT x 64 of them, over steps of 32 terms.
// Workgroup memory and registers are kept few: they decide how many workgroups a processor takes, and those hide each
// other's waiting. Reading a step ahead, or two steps in workgroup memory, brought nothing more.
//
// Loops over matrices are written out (gpu/wgsl.h): an array of them that a loop indexes lies in memory instead of
// registers, which took three times as long. The rows of a tile are those of tile_rows.wgsl. From the host: MT, X_QUADS,
// TRANSPOSED, GATED.
//
// GATED: y = gelu(gate) * up, where the rows of `up` follow those of `gate` in w. A tile is then 64 columns of y: sixteen
// rows of the gate beside the same sixteen of up, so that a subgroup has both products of what it writes.

const M = 32u * MT;
const N = 128u;
const PRODUCTS = select(1u, 2u, GATED);
const THREADS = 128u;
const LINE = 40u;  // of 32 terms, and 8 more so that neighbours lie in different banks
const W_LINE = select(LINE, N + 8u, TRANSPOSED);
const X_SIZE = M * LINE / 4u;                                    // [M][LINE], X_QUADS of each thread
const W_SIZE = select(N * LINE, 32u * W_LINE, TRANSPOSED) / 4u;  // [N][LINE]; transposed: [32][W_LINE]

var<workgroup> xs: array<vec4<f16>, X_SIZE>;
var<workgroup> ws: array<vec4<f16>, W_SIZE>;
var<workgroup> results: array<f32, 1024>;  // 16 x 16 of each subgroup
var<private> gates: array<f32, 8>;         // that wait for their factors
var<private> x_rows: array<u32, X_QUADS>;  // that a thread loads

// Of the rows of w that a tile takes, from column n0 of y on.
fn tile_row(n0: u32, i: u32) -> u32 {
  if (GATED) {
    return i / 16u % 2u * p.n + n0 + i / 32u * 16u + i % 16u;
  }
  return n0 + i;
}

// A thread's share of the factors of terms r0 and on: 32 elements of a row of w, and X_QUADS quads of x.
fn load(row0: u32, n0: u32, r0: u32, terms: u32, thread: u32) {
  var at = thread * (LINE / 4u);
  var row = tile_row(n0, thread);
  var block = r0 / 32u;
  if (TRANSPOSED) {
    at = thread / 4u * (W_LINE / 4u) + thread % 4u * 8u;
    row = r0 + thread / 4u;
    block = n0 / 32u + thread % 4u;
  }
  let w = decode32(row0 + row, block);
  //@for i in 8
  ws[at + $iu] = vec4<f16>(w.quads[$i]);
  //@end
  let line = thread / 8u;
  let quad = thread % 8u;
  //@for i in X_QUADS
  xs[(line + $iu * 16u) * (LINE / 4u) + quad] = halves4(x_rows[$i], r0 / 4u + quad, terms);
  //@end
}

// Sixteen terms from `k` on; offsets count quads.
fn left_at(m: u32, k: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&xs, (m * LINE + k) / 4u, LINE / 4u);
}

fn right_at(n: u32, k: u32) -> Right {
  if (TRANSPOSED) {
    return subgroupMatrixLoad<Right, row_major>(&ws, (k * W_LINE + n) / 4u, W_LINE / 4u);
  }
  return subgroupMatrixLoad<Right, col_major>(&ws, (n * W_LINE + k) / 4u, W_LINE / 4u);
}

// Results of a subgroup, 16 x 16 from place `first` and column n of y on: the j-th of its four.
fn write_results(first: u32, end: u32, n: u32, j: u32, split: u32, columns: u32, subgroup: u32, lane: u32) {
  let column = n + lane % 16u;
  for (var r = 0u; r < 8u; r++) {
    let i = lane / 16u + r * 2u;
    if (first + i < end && column < columns) {
      let m = y_row(first + i);
      let sum = x_scales[x_row(first + i)] * results[subgroup * 256u + i * 16u + lane % 16u];
      if (GATED && j % 2u == 0u) {
        gates[r] = sum;
      } else if (GATED) {
        y[m * p.n + column] = gelu(gates[r]) * sum;
      } else if (p.splits > 1u) {
        y[(m * p.splits + split) * columns + column] = sum;
      } else {
        finish(m * p.n + select(p.first, 0u, TRANSPOSED) + column, sum);
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
  bind_product();
  let split = (group.x + group.y * groups.x) % p.splits;
  let index = (group.x + group.y * groups.x) / p.splits;
  let rows = tile_rows(index % p.tiles, M);
  let n0 = (index / p.tiles) * (N / PRODUCTS);
  let columns = select(p.rows, p.n, TRANSPOSED || GATED);
  let terms = select(select(p.w.columns, p.rows, TRANSPOSED), 0u, rows.none);
  if (n0 >= columns || rows.first >= rows.end) {
    return;
  }
  //@for i in X_QUADS
  x_rows[$i] = x_row(min(rows.first + thread / 8u + $iu * 16u, rows.end - 1u));
  //@end
  let subgroup = thread / 32u;
  let ms = subgroup % 2u * (16u * MT);
  let ns = subgroup / 2u * 64u;
  //@for i in MT
  //@for j in 4
  var sums_$i_$j = Sums();
  //@end
  //@end
  let steps = (terms + 31u) / 32u;
  let first = split * steps / p.splits;
  let end = (split + 1u) * steps / p.splits;
  for (var step = first; step < end; step++) {
    load(rows.row0, n0, step * 32u, terms, thread);
    workgroupBarrier();
    //@for k in 2
    {
      //@for i in MT
      let left_$i = left_at(ms + $iu * 16u, $ku * 16u);
      //@end
      //@for j in 4
      let right_$j = right_at(ns + $ju * 16u, $ku * 16u);
      //@for i in MT
      sums_$i_$j = subgroupMatrixMultiplyAccumulate(left_$i, right_$j, sums_$i_$j);
      //@end
      //@end
    }
    //@end
    workgroupBarrier();
  }
  //@for i in MT
  //@for j in 4
  subgroupMatrixStore<row_major>(&results, subgroup * 256u, sums_$i_$j, 16u);
  workgroupBarrier();
  write_results(rows.first + ms + $iu * 16u, rows.end, n0 + ns / PRODUCTS + $ju / PRODUCTS * 16u, $ju, split, columns, subgroup, thread % 32u);
  workgroupBarrier();
  //@end
  //@end
}
