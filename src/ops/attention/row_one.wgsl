// One query of row.wgsl.

alias Block = vec4f;
alias Stat = f32;

fn query_block(w: u32) -> Block {
  return queries[w];
}
fn sum_lanes(x: Block) -> Block {
  return subgroupAdd(x);
}
fn visible(score: Block, seen: vec4<bool>) -> Block {
  return select(vec4f(NONE), p.scale * score, seen);
}
fn most_of(most: Stat, x: Block) -> Stat {
  return larger(most, x);
}
fn weights_of(x: Block, most: Stat) -> Block {
  return exponentials(x, most);
}
fn total_of(weights: Block) -> Stat {
  return dot(weights, vec4f(1.0));
}
fn scaled(x: Block, by: Stat) -> Block {
  return x * by;
}
fn give_all(first: u32, last: u32, split: u32, lane: u32, x0: Block, x1: Block, x2: Block, x3: Block, most: Stat,
            sum: Stat) {
  give(first, last, split, lane, mat4x4f(x0, x1, x2, x3), most, sum);
}
