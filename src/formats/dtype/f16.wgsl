fn dense4(row: u32, quad: u32) -> vec4f {
  let pairs = two_words(row, quad);
  return vec4f(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
}
