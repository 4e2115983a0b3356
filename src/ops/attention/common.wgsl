// Shared by the kernels of attention: the visible range of a row, and what the four jobs sum up.
//
//   JOB         a row is  its partners  weight of a pair                   result
//   FORWARD     a query   keys          softmax of scale a1 . b1           sum of weight * b2 (value)
//   GRADIENT_Q  a query   keys          scale p (a2 . b2 - delta)          sum of weight * b1 (key)
//   GRADIENT_K  a key     queries       scale p (a2 . b2 - delta)          sum of weight * b1 (query)
//   GRADIENT_V  a key     queries       p = exp(scale a1 . b1 - lse)       sum of weight * b2 (gradient of the output)
//
// From the host: JOB; Element (vec4f, or f32 where the head width is no multiple of 4); Stored, an Element as it lies in
// b1 and b2 (also vec2u: four halves), and wide(), which reads one; Result, what is written. forward.wgsl or
// gradient.wgsl declares `stats`.

const FORWARD = 0u;
const GRADIENT_Q = 1u;
const GRADIENT_K = 2u;
const GRADIENT_V = 3u;
const BY_KEY = JOB == GRADIENT_K || JOB == GRADIENT_V;
const TWO_SCORES = JOB == GRADIENT_Q || JOB == GRADIENT_K;

const CAUSAL = 0u;
const PACKED = 1u;  // causal, bounds[row] is the first visible position
const ALL = 2u;
const REGION = 3u;  // bounds[0] is the length of the prompt

const NONE = -1.0e30;  // a score that is not there

struct Params {
  rows: u32,
  heads: u32,
  kv_heads: u32,
  slots: u32,
  window: u32,
  splits: u32,  // runs that the keys of a row are cut into
  scale: f32,
  threads: u32,
  width: u32,  // elements of a row
  group: u32,  // query heads per key/value head
  mask: u32,
  // row_heads.wgsl
  columns: u32,   // heads in `projected`
  position_scale: f32,
  eps: f32,
  all_bits: u32,  // 0xffffffff
}

fn start_of_window(position: u32) -> u32 {
  if (p.window != 0u && position + 1u > p.window) {
    return position + 1u - p.window;
  }
  return 0u;
}

// Positions [x, y) that a row sees.
fn key_range(row: u32) -> vec2u {
  var range: vec2u;
  if (p.mask == ALL) {
    range = vec2u(0u, p.slots);
    if (p.window != 0u) {
      range = vec2u(start_of_window(row), min(p.slots, row + p.window));
    }
  } else {
    let position = positions[row];
    range = vec2u(start_of_window(position), position + 1u);
    if (p.mask == PACKED) {
      range.x = max(range.x, bounds[row]);
    }
    if (p.mask == REGION && position >= bounds[0]) {
      range = vec2u(start_of_window(bounds[0]), positions[p.rows - 1u] + 1u);
    }
  }
  return vec2u(min(range.x, range.y), range.y);
}

// All that the rows [first, last] see.
fn key_range_of_rows(first: u32, last: u32) -> vec2u {
  let a = key_range(first);
  let b = key_range(last);
  var range = vec2u(min(a.x, b.x), max(a.y, b.y));
  if (p.mask == PACKED) {
    for (var row = first + 1u; row < last; row++) {
      range.x = min(range.x, key_range(row).x);
    }
  }
  return range;
}

// The first row of PACKED from `row` on that sees nothing up to `position`: bounds never fall.
fn end_of_sample(row: u32, position: u32) -> u32 {
  var low = row;
  var high = p.rows;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (bounds[middle] > position) {
      high = middle;
    } else {
      low = middle + 1u;
    }
  }
  return low;
}

// The rows [x, y) that may see one of the positions [first, last]; rows and positions count from the same start.
fn row_range(first: u32, last: u32) -> vec2u {
  if (p.mask != CAUSAL && p.mask != PACKED) {
    return vec2u(0u, p.rows);
  }
  var end = p.rows;
  if (p.window != 0u) {
    end = min(last + p.window, p.rows);
  }
  if (p.mask == PACKED) {
    end = min(end, end_of_sample(min(first, p.rows), last));
  }
  return vec2u(min(first, p.rows), end);
}

// The part of [range.x, range.y) that one split takes, cut at multiples of `block`.
fn split_range(range: vec2u, split: u32, block: u32) -> vec2u {
  let blocks = (range.y - range.x + block - 1u) / block;
  let piece = (blocks + p.splits - 1u) / p.splits * block;
  let begin = min(range.x + split * piece, range.y);
  return vec2u(begin, min(begin + piece, range.y));
}

// Queries of one key/value head g are numbered row by row: row = query / group.
fn query_at(query: u32, g: u32) -> u32 {
  return query / p.group * p.heads + g * p.group + query % p.group;
}
fn key_at(position: u32, g: u32) -> u32 {
  return position % p.slots * p.kv_heads + g;
}

// Of one row as the job counts it: a query, or a key.
fn own_at(n: u32, g: u32) -> u32 {
  if (BY_KEY) {
    return key_at(n, g);
  }
  return query_at(n, g);
}
fn partner_at(n: u32, g: u32) -> u32 {
  if (BY_KEY) {
    return query_at(n, g);
  }
  return key_at(n, g);
}

fn is_in(position: u32, range: vec2u) -> bool {
  return position >= range.x && position < range.y;
}
