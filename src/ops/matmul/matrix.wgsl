// Products of many rows by the matrix units of a GPU, of 16 x 16 x 16: 16-bit factors, sums in 32 bits. A workgroup of
// four subgroups does a tile of 32 MT x 128 results, a subgroup 16 MT x 64 of them, over steps of 32 terms. What the next
// step needs is read while the units work on this one.

const M = 32u * MT;
const N = 128u;
const THREADS = 128u;
const LINE = 40u;  // of 32 terms, and 8 more so that neighbours lie in different banks
const W_LINE = select(LINE, N + 8u, TRANSPOSED);
const X_SIZE = M * LINE / 4u;                            // [M][LINE]
const W_SIZE = select(N * LINE, 32u * W_LINE, TRANSPOSED) / 4u;  // [N][LINE]; transposed: [32][W_LINE]
const X_QUADS = M * 8u / THREADS;                        // of a thread

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

var<workgroup> xs: array<vec4<f16>, 2u * X_SIZE>;  // of this step and the next
var<workgroup> ws: array<vec4<f16>, 2u * W_SIZE>;
var<workgroup> results: array<f32, 1024>;  // 16 x 16 of each subgroup

struct Step {
  x: array<vec4<f16>, X_QUADS>,
  w: Raw32,
}

// A thread's share of the factors of terms r0 and on: of w 32 elements of a row.
fn fetch(m0: u32, n0: u32, r0: u32, terms: u32, thread: u32) -> Step {
  var s: Step;
  if (TRANSPOSED) {
    s.w = raw32(p.row0 + r0 + thread / 4u, n0 / 32u + thread % 4u);
  } else {
    s.w = raw32(p.row0 + n0 + thread, r0 / 32u);
  }
  for (var i = 0u; i < X_QUADS; i++) {
    let unit = i * THREADS + thread;
    s.x[i] = halves4(min(m0 + unit / 8u, p.m - 1u), r0 / 4u + unit % 8u, terms);
  }
  return s;
}

fn put(stage: u32, s: Step, thread: u32) {
  let values = values32(s.w);
  var at = stage * W_SIZE + thread * (LINE / 4u);
  if (TRANSPOSED) {
    at = stage * W_SIZE + thread / 4u * (W_LINE / 4u) + thread % 4u * 8u;
  }
  for (var i = 0u; i < 8u; i++) {
    ws[at + i] = vec4<f16>(values.quads[i]);
  }
  for (var i = 0u; i < X_QUADS; i++) {
    let unit = i * THREADS + thread;
    xs[stage * X_SIZE + unit / 8u * (LINE / 4u) + unit % 8u] = s.x[i];
  }
}

// Sixteen terms from `k` on of a stage; offsets count quads.
fn left_at(stage: u32, m: u32, k: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&xs, stage * X_SIZE + (m * LINE + k) / 4u, LINE / 4u);
}

fn right_at(stage: u32, n: u32, k: u32) -> Right {
  if (TRANSPOSED) {
    return subgroupMatrixLoad<Right, row_major>(&ws, stage * W_SIZE + (k * W_LINE + n) / 4u, W_LINE / 4u);
  }
  return subgroupMatrixLoad<Right, col_major>(&ws, stage * W_SIZE + (n * W_LINE + k) / 4u, W_LINE / 4u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
  bind_product();
  let split = (group.x + group.y * groups.x) % p.splits;
  let index = (group.x + group.y * groups.x) / p.splits;
  let m0 = (index % p.tiles) * M;
  let n0 = (index / p.tiles) * N;
  let columns = select(p.rows, p.n, TRANSPOSED);
  let terms = select(p.w.columns, p.rows, TRANSPOSED);
  if (n0 >= columns) {
    return;
  }
  let subgroup = thread / 32u;
  let ms = subgroup % 2u * (16u * MT);
  let ns = subgroup / 2u * 64u;
  var sums: array<Sums, MT * 4u>;
  let steps = (terms + 31u) / 32u;
  let first = split * steps / p.splits;
  let end = (split + 1u) * steps / p.splits;
  var next = fetch(m0, n0, first * 32u, terms, thread);
  put(first % 2u, next, thread);
  workgroupBarrier();
  for (var step = first; step < end; step++) {
    let more = step + 1u < end;
    if (more) {
      next = fetch(m0, n0, (step + 1u) * 32u, terms, thread);
    }
    for (var k = 0u; k < 32u; k += 16u) {
      var left: array<Left, MT>;
      for (var i = 0u; i < MT; i++) {
        left[i] = left_at(step % 2u, ms + i * 16u, k);
      }
      for (var j = 0u; j < 4u; j++) {
        let right = right_at(step % 2u, ns + j * 16u, k);
        for (var i = 0u; i < MT; i++) {
          sums[i * 4u + j] = subgroupMatrixMultiplyAccumulate(left[i], right, sums[i * 4u + j]);
        }
      }
    }
    if (more) {
      put((step + 1u) % 2u, next, thread);
    }
    workgroupBarrier();
  }
  let lane = thread % 32u;
  for (var i = 0u; i < MT; i++) {
    for (var j = 0u; j < 4u; j++) {
      subgroupMatrixStore<row_major>(&results, subgroup * 256u, sums[i * 4u + j], 16u);
      workgroupBarrier();
      let m = m0 + ms + i * 16u + lane / 2u;
      let n = n0 + ns + j * 16u + lane % 2u * 8u;
      for (var e = 0u; e < 8u; e++) {
        if (m < p.m && n + e < columns) {
          let sum = x_scales[m] * results[subgroup * 256u + lane * 8u + e];
          if (p.splits > 1u) {
            y[(m * p.splits + split) * columns + n + e] = sum;
          } else {
            finish(m * p.n + select(p.first, 0u, TRANSPOSED) + n + e, sum);
          }
        }
      }
      workgroupBarrier();
    }
  }
}
