// Any job by tiles, for many rows: a workgroup takes ROWS rows, and COLS partners at a time.
//
// Threads stand in TY lines of TX. For the weights thread (ty, tx) has rows 4 ty .. 4 ty + 3 and the partners tx + c TX;
// for the result the same rows and the elements tx + v TX. Partners that no row of the tile sees are never read.
// From the host: THREADS, WIDTH (p.width), ROWS, COLS, TILE, and KEYS, partners whose values are in workgroup memory at
// a time.

const DEPTH = 4u;  // elements of each row and partner in workgroup memory at a time
const TY = ROWS / 4u;
const TX = THREADS / TY;
const CM = COLS / TX;
const NV = (WIDTH + TX - 1u) / TX;
const SEGMENTS = THREADS / ROWS;  // threads that share the softmax of a row
const A_LINE = ROWS + 1u;         // one more than needed, so that neighbours lie in different banks
const B_LINE = COLS + 1u;
const B_AT = DEPTH * A_LINE;

var<workgroup> tile: array<vec4f, TILE>;  // factors [DEPTH][A_LINE], [DEPTH][B_LINE], or values [KEYS][WIDTH]
var<workgroup> weights: array<vec4f, TY * B_LINE>;  // [TY][B_LINE], of four rows each
var<workgroup> shared_part: array<f32, THREADS>;
var<workgroup> factors: array<f32, ROWS>;

fn value_of(at: u32) -> vec4f {
  if (TWO_SCORES) {
    return wide(b1[at]);
  }
  return wide(b2[at]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  var total = p.rows * p.group;
  if (BY_KEY) {
    total = p.slots;
  }
  // the last rows see most: they begin
  let row0 = ((total + ROWS - 1u) / ROWS - 1u - group.x / p.splits) * ROWS;
  let last = min(row0 + ROWS, total) - 1u;
  let split = group.x % p.splits;
  let g = group.y;
  var range: vec2u;
  if (BY_KEY) {
    range = row_range(row0, last) * p.group;
  } else {
    range = key_range_of_rows(row0 / p.group, last / p.group);
  }
  range = split_range(range, split, COLS);

  let ty = lane / TX;
  let tx = lane % TX;
  var own_range = array<vec2u, 4>();
  var own_stat = array<vec2f, 4>();
  if (!BY_KEY) {
    for (var r = 0u; r < 4u; r++) {
      let n = min(row0 + ty * 4u + r, last);
      own_range[r] = key_range(n / p.group);
      own_stat[r] = stat_of(query_at(n, g));
    }
  }
  // the thread's place when factors are loaded: element d of row or partner `line`
  let line = lane / DEPTH;
  let d = lane % DEPTH;
  let a_at = own_at(min(row0 + line, last), g) * WIDTH;

  var acc = array<vec4f, 4u * NV>();
  // softmax of row `lane % ROWS`
  let soft = lane % ROWS;
  var most = NONE;
  var sum = 0.0;
  for (var n0 = range.x; n0 < range.y; n0 += COLS) {
    let b_at = partner_at(min(n0 + line, range.y - 1u), g) * WIDTH;
    var score = array<vec4f, CM>();
    var first = array<vec4f, CM>();
    for (var pass_index = 0u; pass_index < select(1u, 2u, TWO_SCORES); pass_index++) {
      first = score;
      score = array<vec4f, CM>();
      for (var w0 = 0u; w0 < WIDTH; w0 += DEPTH) {
        var a = vec4f(0.0);
        var b = vec4f(0.0);
        if (w0 + d < WIDTH) {
          if (pass_index == 0u) {
            a = a1[a_at + w0 + d];
            b = wide(b1[b_at + w0 + d]);
          } else {
            a = a2[a_at + w0 + d];
            b = wide(b2[b_at + w0 + d]);
          }
        }
        workgroupBarrier();
        if (line < ROWS) {
          tile[d * A_LINE + line] = a;
        }
        if (line < COLS) {
          tile[B_AT + d * B_LINE + line] = b;
        }
        workgroupBarrier();
        for (var i = 0u; i < DEPTH; i++) {
          let x = i * A_LINE + ty * 4u;
          let x0 = tile[x];
          let x1 = tile[x + 1u];
          let x2 = tile[x + 2u];
          let x3 = tile[x + 3u];
          for (var c = 0u; c < CM; c++) {
            let y = tile[B_AT + i * B_LINE + tx + c * TX];
            score[c] += vec4f(dot(x0, y), dot(x1, y), dot(x2, y), dot(x3, y));
          }
        }
      }
    }
    for (var c = 0u; c < CM; c++) {
      let n = n0 + tx + c * TX;
      var weight = vec4f(select(0.0, NONE, JOB == FORWARD));
      if (n < range.y) {
        var partner_range = vec2u(0u);
        var partner_stat = vec2f(0.0);
        if (BY_KEY) {
          partner_range = key_range(n / p.group);
          partner_stat = stat_of(query_at(n, g));
        }
        for (var r = 0u; r < 4u; r++) {
          if (JOB == FORWARD) {
            if (is_in(n, own_range[r])) {
              weight[r] = p.scale * score[c][r];
            }
          } else if (BY_KEY) {
            if (is_in(row0 + ty * 4u + r, partner_range)) {
              weight[r] = gradient_weight(select(score[c][r], first[c][r], TWO_SCORES), score[c][r], partner_stat);
            }
          } else if (is_in(n, own_range[r])) {
            weight[r] = gradient_weight(first[c][r], score[c][r], own_stat[r]);
          }
        }
      }
      weights[ty * B_LINE + tx + c * TX] = weight;
    }
    if (JOB == FORWARD) {
      workgroupBarrier();
      let at = soft / 4u * B_LINE;
      let r = soft % 4u;
      var larger = most;
      for (var c = lane / ROWS; c < COLS; c += SEGMENTS) {
        larger = max(larger, weights[at + c][r]);
      }
      shared_part[lane] = larger;
      workgroupBarrier();
      for (var s = soft; s < THREADS; s += ROWS) {
        larger = max(larger, shared_part[s]);
      }
      let shrink = exp(most - larger);
      most = larger;
      sum *= shrink;
      for (var c = lane / ROWS; c < COLS; c += SEGMENTS) {
        let x = weights[at + c][r];
        let weight = select(exp(x - larger), 0.0, x <= NONE);
        sum += weight;
        weights[at + c][r] = weight;
      }
      factors[soft] = shrink;
      workgroupBarrier();
      for (var i = 0u; i < 4u; i++) {
        let factor = factors[ty * 4u + i];
        for (var v = 0u; v < NV; v++) {
          acc[i * NV + v] *= factor;
        }
      }
    }
    let count = min(COLS, range.y - n0);
    for (var k0 = 0u; k0 < count; k0 += KEYS) {
      workgroupBarrier();
      for (var i = lane; i < KEYS * WIDTH; i += THREADS) {
        let n = min(n0 + k0 + i / WIDTH, range.y - 1u);
        tile[i] = value_of(partner_at(n, g) * WIDTH + i % WIDTH);
      }
      workgroupBarrier();
      for (var k = 0u; k < KEYS; k++) {
        let weight = weights[ty * B_LINE + k0 + k];
        for (var v = 0u; v < NV; v++) {
          let x = tile[k * WIDTH + min(tx + v * TX, WIDTH - 1u)];
          acc[v] += weight.x * x;
          acc[NV + v] += weight.y * x;
          acc[2u * NV + v] += weight.z * x;
          acc[3u * NV + v] += weight.w * x;
        }
      }
    }
  }

  let own = row0 + soft;
  let at_own = own_at(min(own, last), g) * p.splits + split;
  if (JOB == FORWARD) {
    shared_part[lane] = sum;
    workgroupBarrier();
    if (lane < ROWS && own <= last) {
      for (var s = soft + ROWS; s < THREADS; s += ROWS) {
        sum += shared_part[s];
      }
      factors[soft] = finish(at_own, most, sum);
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < 4u; r++) {
    let n = row0 + ty * 4u + r;
    if (n <= last) {
      let at = (own_at(n, g) * p.splits + split) * WIDTH;
      for (var v = 0u; v < NV; v++) {
        if (tx + v * TX < WIDTH) {
          result[at + tx + v * TX] = acc[r * NV + v] * select(1.0, factors[ty * 4u + r], JOB == FORWARD);
        }
      }
    }
  }
}
