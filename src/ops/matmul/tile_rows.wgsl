// The rows of x and y that belong to a tile: one after the other, or, of experts, the pairs that chose the same one, as
// experts/group.wgsl has put them together.

struct TileRows {
  first: u32,  // and on, before `end`: numbers of rows, or places in the order of pairs
  end: u32,
  row0: u32,  // of w
  none: bool,  // the pairs chose nothing that is an expert: zeros
}

fn tile_rows(tile: u32, size: u32) -> TileRows {
  if (EXPERTS) {
    let expert = ids[tile * 3u];
    return TileRows(ids[tile * 3u + 1u], ids[tile * 3u + 2u], expert * p.rows, expert >= p.experts);
  }
  return TileRows(tile * size, p.m, p.row0, false);
}

fn y_row(place: u32) -> u32 {
  if (EXPERTS) {
    return ids[p.tiles * 3u + place];
  }
  return place;
}

fn x_row(place: u32) -> u32 {
  if (EXPERTS) {
    return y_row(place) / p.share;
  }
  return place;
}
