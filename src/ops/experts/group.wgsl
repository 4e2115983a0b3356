// Puts the pairs of tokens and experts in the order of their experts, and cuts each expert's pairs into tiles of SIZE:
// groups = [tiles][expert, first place, end], and then the pair of each place. Pairs without an expert come last, as those
// of expert number `experts`; tiles that are not needed have no places. One workgroup does all.

struct Params {
  pairs: u32,
  experts: u32,  // at most 256
  tiles: u32,
}

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> groups: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

const THREADS = 256u;
const MOST = 257u;  // experts, and those that are none

var<workgroup> counts: array<atomic<u32>, MOST>;
var<workgroup> places: array<atomic<u32>, MOST>;  // the next one of each expert

fn expert_of(pair: u32) -> u32 {
  return min(ids[pair], p.experts);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
  for (var pair = thread; pair < p.pairs; pair += THREADS) {
    atomicAdd(&counts[expert_of(pair)], 1u);
  }
  for (var tile = thread; tile < p.tiles; tile += THREADS) {
    groups[tile * 3u + 1u] = 0u;
    groups[tile * 3u + 2u] = 0u;
  }
  workgroupBarrier();
  storageBarrier();
  for (var expert = thread; expert <= p.experts; expert += THREADS) {
    var first = 0u;
    var tile = 0u;
    for (var before = 0u; before < expert; before++) {
      let count = atomicLoad(&counts[before]);
      first += count;
      tile += (count + SIZE - 1u) / SIZE;
    }
    atomicStore(&places[expert], first);
    let end = first + atomicLoad(&counts[expert]);
    for (; first < end; first += SIZE) {
      groups[tile * 3u] = expert;
      groups[tile * 3u + 1u] = first;
      groups[tile * 3u + 2u] = min(first + SIZE, end);
      tile++;
    }
  }
  workgroupBarrier();
  for (var pair = thread; pair < p.pairs; pair += THREADS) {
    groups[p.tiles * 3u + atomicAdd(&places[expert_of(pair)], 1u)] = pair;
  }
}
