// Quantised types: the type's own file has `unpack32`, which all else follows from.

// 32 consecutive elements: code * scale + offset.
struct Block32 {
  low: vec4u,      // codes as signed bytes, elements 0 to 15
  high: vec4u,     // and 16 to 31
  scale: vec2f,    // of each half
  offset: f32,
}

fn block_at(row: u32, block: u32) -> u32 {
  return min(row, p.w.rows - 1u) * p.w.blocks + block;
}

fn signed_bytes(word: u32) -> vec4f {
  return vec4f((vec4i(i32(word)) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u));
}

fn decode32(row: u32, block: u32) -> Values32 {
  let b = unpack32(block_at(row, block));
  let o = vec4f(b.offset);
  return Values32(array<vec4f, 8>(
    signed_bytes(b.low.x) * b.scale.x + o, signed_bytes(b.low.y) * b.scale.x + o,
    signed_bytes(b.low.z) * b.scale.x + o, signed_bytes(b.low.w) * b.scale.x + o,
    signed_bytes(b.high.x) * b.scale.y + o, signed_bytes(b.high.y) * b.scale.y + o,
    signed_bytes(b.high.z) * b.scale.y + o, signed_bytes(b.high.w) * b.scale.y + o));
}

fn decode4(row: u32, quad: u32) -> vec4f {
  return decode32(row, quad / 8u).quads[quad % 8u];
}

// A block whose quads 0, 1, ... a loop decodes one after the other. The words move up, so that the next one is always the
// first: words that are chosen when the loop runs lie in memory.
alias Open32 = Block32;

fn open32(row: u32, block: u32) -> Open32 {
  return unpack32(block_at(row, block));
}

fn next4(b: ptr<function, Open32>, quad: u32) -> vec4f {
  let now = *b;
  *b = Open32(vec4u(now.low.yzw, now.high.x), vec4u(now.high.yzw, 0u), select(now.scale, now.scale.yy, quad == 3u),
              now.offset);
  return signed_bytes(now.low.x) * now.scale.x + now.offset;
}

// --- for the types' files

// Half number `index` of a plane of halves.
fn half_at(plane: u32, index: u32) -> f32 {
  let pair = unpack2x16float(w1[plane + index / 2u]);
  return select(pair.x, pair.y, (index & 1u) == 1u);
}

fn low_nibbles(q: vec4u) -> vec4u {
  return q & vec4u(0x0f0f0f0fu);
}

fn high_nibbles(q: vec4u) -> vec4u {
  return (q >> vec4u(4u)) & vec4u(0x0f0f0f0fu);
}

// Codes in bytes, each below 128, minus `zero`, as signed bytes. No carry leaves a byte.
fn centred(codes: vec4u, zero: u32) -> vec4u {
  return (codes + vec4u((128u - zero) * 0x01010101u)) ^ vec4u(0x80808080u);
}

// Bits 4i to 4i + 3 of `bits` become bit 4 of the four bytes of word i.
fn fifth_bits(bits: u32) -> vec4u {
  let nibbles = (vec4u(bits) >> vec4u(0u, 4u, 8u, 12u)) & vec4u(15u);
  return ((nibbles * 0x00204081u) & vec4u(0x01010101u)) << vec4u(4u);
}

// Scale and minimum of sub-block j of Q4_K and Q5_K, from the head of their block: d and dmin, then 6 bits of each.
fn scale_and_minimum(head: vec4u, j: u32) -> vec2f {
  let words = head.yzw >> vec3u(8u * (j & 3u));
  var six = words.xy & vec2u(63u);
  if (j >= 4u) {
    six = (vec2u(words.z, words.z >> 4u) & vec2u(15u)) | ((words.xy >> vec2u(2u)) & vec2u(0x30u));
  }
  return unpack2x16float(head.x) * vec2f(six);
}
