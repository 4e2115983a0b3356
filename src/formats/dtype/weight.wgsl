// A part of a weight matrix in GPU memory (ops/weight_layout.h), for every kernel that reads weights. The kernel's
// `p: Params` has a member `w: Weight`. Rows past the end are read as the last row: kernels discard what they give.

struct Weight {
  planes: vec4u,   // quantised types: first word of each field's plane
  row_words: u32,  // dense types
  columns: u32,
  blocks: u32,     // of 32 elements in a row, the last one perhaps cut
  rows: u32,
}

@group(0) @binding(0) var<storage, read> w1: array<u32>;
@group(0) @binding(1) var<storage, read> w4: array<vec4u>;  // the same words

// 32 consecutive elements of a row, zeros past its end.
struct Values32 {
  quads: array<vec4f, 8>,
}

// Kernels call this so that their layout has both bindings, whichever of them the type reads.
fn bind_weight() {
  _ = &w1;
  _ = &w4;
}
