// Four queries of row.wgsl, which read the keys and values once. A column is a query.

alias Block = mat4x4f;
alias Stat = vec4f;

fn query_block(w: u32) -> Block {
  return mat4x4f(queries[w], queries[PADDED + w], queries[2u * PADDED + w], queries[3u * PADDED + w]);
}
fn sum_lanes(x: Block) -> Block {
  return mat4x4f(subgroupAdd(x[0]), subgroupAdd(x[1]), subgroupAdd(x[2]), subgroupAdd(x[3]));
}
fn visible(score: Block, seen: vec4<bool>) -> Block {
  let x = p.scale * score;
  let none = vec4f(NONE);
  return mat4x4f(select(none, x[0], seen), select(none, x[1], seen), select(none, x[2], seen), select(none, x[3], seen));
}
fn most_of(most: Stat, x: Block) -> Stat {
  return vec4f(larger(most.x, x[0]), larger(most.y, x[1]), larger(most.z, x[2]), larger(most.w, x[3]));
}
fn weights_of(x: Block, most: Stat) -> Block {
  return mat4x4f(exponentials(x[0], most.x), exponentials(x[1], most.y), exponentials(x[2], most.z),
                 exponentials(x[3], most.w));
}
fn total_of(weights: Block) -> Stat {
  return vec4f(1.0) * weights;
}
fn scaled(x: Block, by: Stat) -> Block {
  return mat4x4f(x[0] * by.x, x[1] * by.y, x[2] * by.z, x[3] * by.w);
}
fn give_all(first: u32, last: u32, split: u32, lane: u32, x0: Block, x1: Block, x2: Block, x3: Block, most: Stat,
            sum: Stat) {
  give(first, last, split, lane, mat4x4f(x0[0], x1[0], x2[0], x3[0]), most.x, sum.x);
  give(first + 1u, last, split, lane, mat4x4f(x0[1], x1[1], x2[1], x3[1]), most.y, sum.y);
  give(first + 2u, last, split, lane, mat4x4f(x0[2], x1[2], x2[2], x3[2]), most.z, sum.z);
  give(first + 3u, last, split, lane, mat4x4f(x0[3], x1[3], x2[3], x3[3]), most.w, sum.w);
}
