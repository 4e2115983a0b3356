// The forward job for many queries by the matrix units of a GPU, of 16 x 16 x 16: 16-bit factors, sums in 32 bits. A
// workgroup takes ROWS queries, and COLS keys at a time: scores = queries x keys, out of them the weights, and
// sums += weights x values. Keys that no query of the tile sees are never read.
//
// Matrices of sums cannot be scaled row by row where they are. A row's weights therefore keep to the largest score that
// was known when they began, until a score exceeds it by RISE: then all sums go through workgroup memory, which is rare.
//
// Loops over matrices are written out (gpu/wgsl.h). From the host: D, the width of a head; SUBGROUPS; ROWS; COLS;
// TILE, fours of a tile of queries and keys, or of V_KEYS values; SPLIT. What a subgroup has of the scores is SM x SN
// matrices, and of the sums OM x ON of them; a thread loads Q_LOADS, K_LOADS and V_LOADS eights of halves.

const THREADS = 32u * SUBGROUPS;
const CHUNK = 64u;  // elements of each query and key in workgroup memory at a time
const EIGHTS = D / 8u;
const LINE = CHUNK + 8u;  // more than needed, so that neighbours lie in different banks
const V_LINE = D + 8u;
const S_LINE = COLS + 4u;
const P_LINE = COLS + 8u;
const K_AT = ROWS * LINE;          // keys follow the queries
const SHARE = THREADS / ROWS;      // neighbouring threads that share the softmax of a row
const FOURS = COLS / SHARE / 4u;   // of scores, of a thread
const GRID = COLS / 16u / SN;      // subgroups next to each other over the scores
const RISE = 5.0;                  // weights stay below e^5, far from where halves end

@group(0) @binding(0) var<storage, read> queries: array<vec4u>;  // eights of halves, as record_halves makes them
@group(0) @binding(1) var<storage, read> keys: array<vec4u>;
@group(0) @binding(2) var<storage, read> query_scales: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<vec4u>;
@group(0) @binding(5) var<storage, read> positions: array<u32>;
@group(0) @binding(6) var<storage, read> bounds: array<u32>;
@group(0) @binding(7) var<storage, read_write> result: array<vec4f>;
@group(0) @binding(8) var<uniform> p: Params;

var<workgroup> tile: array<vec4<f16>, TILE>;  // [ROWS + COLS][LINE] of queries and keys, or values [V_KEYS][V_LINE]
var<workgroup> scores: array<f32, ROWS * S_LINE>;  // or 16 x 16 sums of each subgroup
var<workgroup> weights: array<vec4<f16>, ROWS * P_LINE / 4u>;
var<workgroup> factors: array<f32, ROWS>;
var<workgroup> rises: atomic<u32>;

fn put(at: u32, eight: vec4u) {
  tile[at / 4u] = bitcast<vec4<f16>>(eight.xy);
  tile[at / 4u + 1u] = bitcast<vec4<f16>>(eight.zw);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
  let total = p.rows * p.group;
  // the last rows see most: they begin
  let row0 = ((total + ROWS - 1u) / ROWS - 1u - group.x / p.splits) * ROWS;
  let last = min(row0 + ROWS, total) - 1u;
  let split = group.x % p.splits;
  let g = group.y;
  let range = split_range(key_range_of_rows(row0 / p.group, last / p.group), split, COLS);

  let subgroup = thread / 32u;
  let lane = thread % 32u;
  let ms = subgroup / GRID * (16u * SM);  // of the scores
  let ns = subgroup % GRID * (16u * SN);
  let os = subgroup * (16u * ON);  // of the sums

  // a thread's places when chunks are loaded: an eight of every THREADS / 8 lines
  let line = thread / 8u;
  let eight = thread % 8u;
  //@for i in Q_LOADS
  let query_$i = query_at(min(row0 + line + $iu * (THREADS / 8u), last), g) * EIGHTS + eight;
  //@end

  // the softmax of a row: a thread has every SHARE'th four of scores
  let row = thread / SHARE;
  let part = thread % SHARE;
  let own = query_at(min(row0 + row, last), g);
  let own_range = key_range(min(row0 + row, last) / p.group);
  let scale = p.scale * query_scales[own];
  var most = NONE;
  var sum = 0.0;

  //@for i in OM
  //@for j in ON
  var sums_$i_$j = Sums();
  //@end
  //@end
  for (var n0 = range.x; n0 < range.y; n0 += COLS) {
    //@for i in K_LOADS
    let key_$i = key_at(min(n0 + line + $iu * (THREADS / 8u), range.y - 1u), g) * EIGHTS + eight;
    //@end
    // with a value: a variable without one is zero at first, but not in each turn of a loop
    //@for i in SM
    //@for j in SN
    var scores_$i_$j = Sums();
    //@end
    //@end
    for (var w = 0u; w < EIGHTS; w += CHUNK / 8u) {
      workgroupBarrier();
      //@for i in Q_LOADS
      put((line + $iu * (THREADS / 8u)) * LINE + eight * 8u, queries[query_$i + w]);
      //@end
      //@for i in K_LOADS
      put(K_AT + (line + $iu * (THREADS / 8u)) * LINE + eight * 8u, keys[key_$i + w]);
      //@end
      workgroupBarrier();
      for (var k = 0u; k < CHUNK; k += 16u) {
        //@for i in SM
        let left_$i = subgroupMatrixLoad<Left, row_major>(&tile, ((ms + $iu * 16u) * LINE + k) / 4u, LINE / 4u);
        //@end
        //@for j in SN
        let right_$j = subgroupMatrixLoad<Right, col_major>(&tile, (K_AT + (ns + $ju * 16u) * LINE + k) / 4u, LINE / 4u);
        //@for i in SM
        scores_$i_$j = subgroupMatrixMultiplyAccumulate(left_$i, right_$j, scores_$i_$j);
        //@end
        //@end
      }
    }
    //@for i in SM
    //@for j in SN
    subgroupMatrixStore<row_major>(&scores, (ms + $iu * 16u) * S_LINE + ns + $ju * 16u, scores_$i_$j, S_LINE);
    //@end
    //@end
    if (thread == 0u) {
      atomicStore(&rises, 0u);
    }
    workgroupBarrier();
    var mine: array<vec4f, FOURS>;
    var larger = most;
    for (var i = 0u; i < FOURS; i++) {
      let c = (i * SHARE + part) * 4u;
      for (var k = 0u; k < 4u; k++) {
        mine[i][k] = select(NONE, scale * scores[row * S_LINE + c + k], is_in(n0 + c + k, own_range));
        larger = max(larger, mine[i][k]);
      }
    }
    for (var step = 1u; step < SHARE; step *= 2u) {
      larger = max(larger, subgroupShuffleXor(larger, step));
    }
    var factor = 1.0;
    if (larger > most + RISE) {
      factor = exp(most - larger);
      most = larger;
      if (n0 > range.x) {
        atomicStore(&rises, 1u);
      }
    }
    sum *= factor;
    for (var i = 0u; i < FOURS; i++) {
      let weight = vec4<f16>(select(exp(mine[i] - most), vec4f(), mine[i] <= vec4f(NONE)));
      sum += dot(vec4f(weight), vec4f(1.0));
      weights[row * (P_LINE / 4u) + i * SHARE + part] = weight;
    }
    factors[row] = factor;
    workgroupBarrier();
    if (workgroupUniformLoad(&rises) != 0u) {
      //@for i in OM
      //@for j in ON
      subgroupMatrixStore<row_major>(&scores, subgroup * 256u, sums_$i_$j, 16u);
      workgroupBarrier();
      for (var i = 0u; i < 8u; i++) {
        scores[subgroup * 256u + i * 32u + lane] *= factors[$iu * 16u + i * 2u + lane / 16u];
      }
      workgroupBarrier();
      sums_$i_$j = subgroupMatrixLoad<Sums, row_major>(&scores, subgroup * 256u, 16u);
      //@end
      //@end
    }
    for (var k0 = 0u; k0 < COLS; k0 += V_KEYS) {
      workgroupBarrier();
      //@for i in V_LOADS
      {
        let at = thread + $iu * THREADS;
        let key = key_at(min(n0 + k0 + at / EIGHTS, range.y - 1u), g);
        put(at / EIGHTS * V_LINE + at % EIGHTS * 8u, values[key * EIGHTS + at % EIGHTS]);
      }
      //@end
      workgroupBarrier();
      for (var k = 0u; k < V_KEYS; k += 16u) {
        //@for i in OM
        let left_$i = subgroupMatrixLoad<Left, row_major>(&weights, ($iu * 16u * P_LINE + k0 + k) / 4u, P_LINE / 4u);
        //@end
        //@for j in ON
        let right_$j = subgroupMatrixLoad<Right, row_major>(&tile, (k * V_LINE + os + $ju * 16u) / 4u, V_LINE / 4u);
        //@for i in OM
        sums_$i_$j = subgroupMatrixMultiplyAccumulate(left_$i, right_$j, sums_$i_$j);
        //@end
        //@end
      }
    }
  }

  for (var step = 1u; step < SHARE; step *= 2u) {
    sum += subgroupShuffleXor(sum, step);
  }
  if (part == 0u) {
    factors[row] = average(sum);
    if (row0 + row <= last) {
      write_stats(own * p.splits + split, most, sum);
    }
  }
  //@for i in OM
  //@for j in ON
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&scores, subgroup * 256u, sums_$i_$j, 16u);
  workgroupBarrier();
  for (var i = lane; i < 64u; i += 32u) {
    let m = $iu * 16u + i / 4u;
    if (row0 + m <= last) {
      let at = subgroup * 256u + i * 4u;
      let four = vec4f(scores[at], scores[at + 1u], scores[at + 2u], scores[at + 3u]) * factors[m];
      result[(query_at(row0 + m, g) * p.splits + split) * (D / 4u) + (os + $ju * 16u) / 4u + i % 4u] = four;
    }
  }
  //@end
  //@end
}
