// Dense types: the type's own file has `dense4` and `dense1`, four elements of a row and one, without regard to its end.

fn decode4(row: u32, quad: u32) -> vec4f {
  let left = max(p.w.columns, quad * 4u) - quad * 4u;
  if (left >= 4u) {
    return dense4(row, quad);
  }
  if (left == 0u) {
    return vec4f();
  }
  return select(vec4f(), dense4(row, quad), vec4u(0u, 1u, 2u, 3u) < vec4u(left));
}

fn decode32(row: u32, block: u32) -> Values32 {
  var values: Values32;
  //@for i in 8
  values.quads[$i] = decode4(row, block * 8u + $iu);
  //@end
  return values;
}

// A block whose quads a loop reads one after the other.
struct Open32 {
  row: u32,
  first: u32,  // quad of the row
}

fn open32(row: u32, block: u32) -> Open32 {
  return Open32(row, block * 8u);
}

fn next4(b: ptr<function, Open32>, quad: u32) -> vec4f {
  return decode4((*b).row, (*b).first + quad);
}

// ALIGNED: every row starts at a multiple of 16 bytes.
fn row_start(row: u32) -> u32 {
  return min(row, p.w.rows - 1u) * p.w.row_words;
}

// Four elements of a type of 16 bits.
fn two_words(row: u32, quad: u32) -> vec2u {
  let at = row_start(row) + quad * 2u;
  if (ALIGNED) {
    let words = w4[at / 4u];
    return select(words.xy, words.zw, (at & 2u) == 2u);
  }
  return vec2u(w1[at], w1[at + 1u]);
}
