// Any job without barriers: one thread does one row, over one run of its partners. Loops over the width have no constant
// bound: CPU drivers would unroll them, which takes seconds. From the host: THREADS; CAPACITY, at least the width.

const BLOCK = 8u;  // partners scored together

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let thread = (group.x + group.y * groups.x) * THREADS + lane;
  if (thread >= p.threads) {
    return;
  }
  let split = thread % p.splits;
  let own = thread / p.splits;
  var g: u32;
  var range: vec2u;
  if (BY_KEY) {
    g = own % p.kv_heads;
    range = row_range(own / p.kv_heads, own / p.kv_heads) * p.group;
  } else {
    g = own % p.heads / p.group;
    range = key_range(own / p.heads);
  }
  range = split_range(range, split, BLOCK);

  var most = NONE;
  var sum = 0.0;
  var acc = array<Element, CAPACITY>();
  for (var n0 = range.x; n0 < range.y; n0 += BLOCK) {
    let count = min(BLOCK, range.y - n0);
    var at: array<u32, BLOCK>;
    var score = array<f32, BLOCK>();
    var other = array<f32, BLOCK>();
    for (var j = 0u; j < BLOCK; j++) {
      at[j] = partner_at(n0 + min(j, count - 1u), g) * p.width;
    }
    for (var w = 0u; w < p.width; w++) {
      let x = a1[own * p.width + w];
      for (var j = 0u; j < BLOCK; j++) {
        score[j] += inner(x, wide(b1[at[j] + w]));
      }
    }
    if (TWO_SCORES) {
      for (var w = 0u; w < p.width; w++) {
        let x = a2[own * p.width + w];
        for (var j = 0u; j < BLOCK; j++) {
          other[j] += inner(x, wide(b2[at[j] + w]));
        }
      }
    }
    var shrink = 1.0;
    if (JOB == FORWARD) {
      var larger = most;
      for (var j = 0u; j < count; j++) {
        score[j] *= p.scale;
        larger = max(larger, score[j]);
      }
      shrink = exp(most - larger);
      most = larger;
      sum *= shrink;
    }
    for (var j = 0u; j < BLOCK; j++) {
      var weight = 0.0;
      if (j < count) {
        if (JOB == FORWARD) {
          weight = exp(score[j] - most);
        } else if (!BY_KEY) {
          weight = gradient_weight(score[j], other[j], stat_of(own));
        } else if (is_in(own / p.kv_heads, key_range((n0 + j) / p.group))) {
          weight = gradient_weight(score[j], other[j], stat_of(query_at(n0 + j, g)));
        }
      }
      sum += weight;
      score[j] = weight;
    }
    for (var w = 0u; w < p.width; w++) {
      var x = acc[w] * shrink;
      for (var j = 0u; j < BLOCK; j++) {
        if (TWO_SCORES) {
          x += score[j] * wide(b1[at[j] + w]);
        } else {
          x += score[j] * wide(b2[at[j] + w]);
        }
      }
      acc[w] = x;
    }
  }
  let factor = finish(thread, most, sum);
  for (var w = 0u; w < p.width; w++) {
    result[thread * p.width + w] = acc[w] * factor;
  }
}
