#include <initializer_list>

#include "base/text.h"
#include "ops/embedding/embedding.h"
#include "ops/matmul/matmul.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;
constexpr DType kWeights[] = {F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K};

struct Size {
  std::uint64_t k, n, m;
};

struct Rows {
  std::uint64_t row0, row1;
};

class Cases {
 public:
  // y = W x, or dx = W^T dy; x is [m, k] or [m, n]
  OpCase& product(bool transposed, DType w, Size s, double absolute, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = transposed ? "matmul_transposed" : "matmul";
    c.format = name(w);
    c.shape = cat("k=", s.k, " n=", s.n, " rows=", s.m);
    c.inputs = {{"x", {F32, {s.m, transposed ? s.n : s.k}}, Fill::uniform(-0.5, 0.5)},
                {"w", {w, {s.n, s.k}}, Fill::normal(0.05), true}};
    c.build = [transposed](Graph&, std::span<const Var> in) {
      return std::vector{transposed ? matmul_transposed(in[0], in[1]) : matmul(in[0], in[1])};
    };
    c.absolute = absolute;
    c.relative = 1e-5;
    c.fast = info(w).quantised && !transposed ? 0.02 : 2e-3;  // 8 bits, or 16
    c.use = use;
    return add(std::move(c));
  }

  // All elements of x are rounded to 8 bits in one direction: the errors must not add up where weights have an offset.
  void one_sided(DType w, std::uint64_t rows) {
    OpCase& c = product(false, w, {1024, 24, rows}, 1e-3);
    c.shape += " rounded one way";
    c.inputs[0].fill =
        Fill::function([](std::uint64_t i) { return i % 32 ? static_cast<double>(i * 37 % 101) - 50 + 0.4 : 127.0; });
  }

  // Rows [row0, row1) of w, scaled, added to something: a tile of a vocabulary.
  void range(bool transposed, DType w, Size s, Rows r) {
    OpCase& c = product(transposed, w, s, 1e-4);
    c.shape += cat(" range=", r.row0, "-", r.row1);
    const std::uint64_t part = r.row1 - r.row0;
    c.inputs[0].desc.shape = {s.m, transposed ? part : s.k};
    c.inputs.push_back({"plus", {F32, {s.m, transposed ? s.k : part}}, Fill::normal()});
    c.build = [transposed, r](Graph&, std::span<const Var> in) {
      const ProductOptions options{.scale = 0.5f, .plus = in[2], .row0 = r.row0, .row1 = r.row1};
      return std::vector{transposed ? matmul_transposed(in[0], in[1], options) : matmul(in[0], in[1], options)};
    };
    c.derivative = true;
  }

  // Products with tiles of the rows of w; transposed, their sum minus the whole.
  void tiled(bool transposed, DType w, Size s, std::vector<std::uint64_t> cuts) {
    OpCase& c = product(transposed, w, s, 1e-5);
    c.shape += cat(" in ", cuts.size() - 1, " tiles");
    if (transposed) c.fast = 0;  // of a sum that vanishes no share can be told
    c.build = [transposed, cuts](Graph&, std::span<const Var> in) {
      std::vector<Var> out;
      if (!transposed) {
        for (std::size_t i = 0; i + 1 < cuts.size(); i++)
          out.push_back(matmul(in[0], in[1], {.row0 = cuts[i], .row1 = cuts[i + 1]}));
        return out;
      }
      Var sum = matmul_transposed(in[0], in[1], {.scale = -1});
      for (std::size_t i = 0; i + 1 < cuts.size(); i++) {
        // one row: a tile of dy is a tile of memory, here made by a product with rows of the unit matrix
        const Var tile = matmul(in[0], in[2], {.row0 = cuts[i], .row1 = cuts[i + 1]});
        sum = matmul_transposed(tile, in[1], {.plus = sum, .row0 = cuts[i], .row1 = cuts[i + 1]});
      }
      return std::vector{sum};
    };
    if (transposed)
      c.inputs.push_back({"unit",
                          {F32, {s.n, s.n}},
                          Fill::function([n = s.n](std::uint64_t i) { return i / n == i % n ? 1.0 : 0.0; }),
                          true});
  }

  // Both factors are activations: all three products and their gradients.
  void activations(Size s, std::string_view op, Var (*make)(Var, Var, const ProductOptions&), Shape a, Shape b) {
    OpCase c;
    c.op = op;
    c.format = "F32";
    c.shape = cat("k=", s.k, " n=", s.n, " rows=", s.m, " both inputs");
    c.inputs = {{"a", {F32, a}, Fill::uniform(-0.5, 0.5)}, {"b", {F32, b}, Fill::uniform(-0.5, 0.5)}};
    c.build = [make](Graph&, std::span<const Var> in) { return std::vector{make(in[0], in[1], {.scale = 0.5f})}; };
    c.absolute = 1e-5;
    c.relative = 1e-5;
    c.derivative = true;
    add(std::move(c));
  }

  OpCase& add(OpCase c) {
    all.push_back(std::move(c));
    return all.back();
  }
  std::vector<OpCase> all;
};

// y + s B (A x) and its gradients, as the issue of a layer with an adapter.
OpCase adapter(DType b, std::uint64_t k, std::uint64_t rank, std::uint64_t n, std::uint64_t m) {
  OpCase c;
  c.op = "adapter";
  c.format = name(b);
  c.shape = cat("k=", k, " rank=", rank, " n=", n, " rows=", m);
  c.inputs = {{"x", {F32, {m, k}}, Fill::normal()},
              {"A", {F32, {rank, k}}, Fill::normal(0.3)},
              {"B", {b, {n, rank}}, Fill::normal(0.3)},
              {"y", {F32, {m, n}}, Fill::normal()}};
  c.build = [](Graph&, std::span<const Var> in) {
    return std::vector{matmul(matmul(in[0], in[1]), in[2], {.scale = 0.5f, .plus = in[3]})};
  };
  c.absolute = n > 1000 ? 2e-4 : 2e-5;  // gradients are sums over n
  c.relative = 1e-5;
  c.derivative = true;
  return c;
}

// The same of an embedding: A's columns are read, and its gradient is scattered to them.
OpCase embedding_adapter(std::uint64_t vocabulary, std::uint64_t rank, std::uint64_t n, std::uint64_t m) {
  OpCase c;
  c.op = "adapter";
  c.format = "F32";
  c.shape = cat("embedding vocabulary=", vocabulary, " rank=", rank, " n=", n, " rows=", m);
  c.inputs = {{"ids", {U32, {m}}, Fill::ids(static_cast<double>(vocabulary))},
              {"A", {F32, {rank, vocabulary}}, Fill::normal(0.3)},
              {"B", {F32, {n, rank}}, Fill::normal(0.3)},
              {"y", {F32, {m, n}}, Fill::normal()}};
  c.build = [](Graph&, std::span<const Var> in) {
    return std::vector{matmul(embedding_columns(in[1], in[0]), in[2], {.scale = 0.5f, .plus = in[3]})};
  };
  c.absolute = 2e-5;
  c.relative = 1e-5;
  c.derivative = true;
  return c;
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  Cases cases;
  for (const DType w : kWeights) {
    for (const bool transposed : {false, true}) {
      cases.product(transposed, w, {256, 37, 1}, 1e-4).derivative = true;
      cases.product(transposed, w, {512, 70, 19}, 1e-4);
    }
    cases.range(false, w, {256, 40, 3}, {7, 33});
    cases.range(true, w, {256, 40, 3}, {7, 33});
    for (const bool transposed : {false, true}) cases.product(transposed, w, {512, 200, 2}, 1e-4).split = true;
  }
  for (const DType w : {Q4_1, Q5_1, Q4_K, Q5_K})
    for (const std::uint64_t rows : {1, 3}) cases.one_sided(w, rows);
  // many rows: tiles that are cut at their edges, few tiles whose terms are done in several parts
  for (const DType w : {F32, BF16, Q4_0, Q4_K, Q6_K}) {
    cases.product(false, w, {1024, 96, 100}, 1e-4);
    cases.product(false, w, {768, 300, 130}, 1e-4);
    cases.product(true, w, {256, 1024, 70}, 2e-4);
    cases.product(true, w, {512, 200, 130}, 1e-4);
  }
  cases.range(false, Q4_K, {512, 700, 100}, {128, 620});
  cases.range(true, Q4_K, {512, 700, 100}, {128, 620});
  // rows that start in the middle of a word, tails of all kinds
  for (const DType w : {F32, F16, BF16}) {
    for (const std::uint64_t k : {1, 3, 8, 9, 33, 65, 100, 1000}) cases.product(false, w, {k, 5, 2}, 1e-4);
    for (const std::uint64_t k : {1, 9, 33, 100}) cases.product(true, w, {k, 5, 2}, 1e-4);
    for (const Size s : {Size{33, 5, 6}, {64, 32, 6}, {80, 24, 17}, {80, 40, 19}, {80, 72, 35}, {768, 3072, 1}})
      cases.product(false, w, s, 1e-4);
  }
  cases.product(false, F16, {4, 3, 1}, 1e-4);
  for (const DType w : {F16, BF16}) cases.product(false, w, {256, 512, 300}, 1e-4);
  cases.product(false, Q5_0, {64, 5, 1}, 1e-4);
  cases.product(false, Q8_0, {96, 7, 1}, 1e-4);
  cases.product(false, Q4_0, {128, 16, 1}, 1e-4);
  cases.product(false, Q4_K, {1536, 2048, 1}, 1e-3);
  for (const Size s :
       {Size{256, 300, 1}, {256, 8200, 1}, {256, 16420, 1}, {2816, 128, 1}, {2816, 130, 1}, {4352, 300, 1}})
    cases.product(false, Q4_K, s, 1e-3);
  for (const Size s : {Size{544, 6150, 1}, {64, 65540, 1}}) cases.product(false, Q8_0, s, 1e-3);
  cases.product(false, Q6_K, {1536, 256, 1}, 1e-3);
  // long rows, which several teams share
  for (const DType w : {F32, Q4_K, Q8_0})
    for (const Size s : {Size{4352, 37, 1}, {8448, 21, 2}}) cases.product(false, w, s, 2e-3);
  cases.product(false, F32, {4, 600000, 1}, 1e-5);
  for (const bool transposed : {false, true})  // empty sums and empty results
    for (const Size s : {Size{0, 5, 2}, {32, 0, 2}, {32, 5, 0}}) {
      cases.product(transposed, F32, s, 0);
      cases.product(transposed, Q8_0, s, 0);
    }
  cases.tiled(false, Q8_0, {64, 100, 2}, {0, 13, 77, 100});
  cases.tiled(true, Q4_0, {64, 256, 1}, {0, 32, 64, 96, 128, 160, 192, 224, 256});
  for (const Size s : {Size{1, 1, 1}, {7, 5, 3}, {65, 33, 70}, {700, 16, 70}, {16, 300, 600}}) {
    cases.activations(s, "matmul", matmul, {s.m, s.k}, {s.n, s.k});
    cases.activations(s, "matmul_transposed", matmul_transposed, {s.m, s.n}, {s.n, s.k});
    cases.activations(s, "outer_sum", outer_sum, {s.m, s.n}, {s.m, s.k});
  }
  for (const std::uint64_t rank : {1, 4, 8, 16, 64, 65}) cases.add(adapter(F32, 16, rank, 12, 2));
  cases.add(adapter(F16, 32, 16, 20, 1));
  cases.add(adapter(F16, 32, 5, 20, 3));
  cases.add(adapter(F32, 2, 1, 1, 1)), cases.add(adapter(F32, 16, 4, 12, 0));
  cases.add(adapter(F32, 24, 3, 9000, 2));  // an output head
  cases.add(embedding_adapter(11, 5, 20, 30));

  cases.activations({2560, 2560, 512}, "outer_sum", outer_sum, {512, 2560}, {512, 2560});
  cases.all.back().use = CaseUse::bench;
  cases.all.back().derivative = false;
  cases.activations({16, 262144, 1}, "outer_sum", outer_sum, {1, 262144}, {1, 16});  // of an output head's adapter
  cases.all.back().derivative = false;
  for (OpCase c :
       {adapter(F32, 2560, 16, 10240, 1), adapter(F16, 2560, 16, 10240, 1), adapter(F32, 2560, 16, 10240, 2048),
        adapter(F32, 2560, 16, 262144, 64), embedding_adapter(262144, 16, 2560, 2048)}) {
    c.use = CaseUse::bench;
    cases.add(std::move(c));
  }
  for (const DType w : {Q4_0, Q8_0, Q4_K, Q6_K}) {
    const std::uint64_t n = w == Q8_0 || w == Q6_K ? 16384 : 32768;
    cases.product(false, w, {8192, n, 1}, 1e-2, CaseUse::bench);
  }
  for (const std::uint64_t k : {1536, 2816}) cases.product(false, Q6_K, {k, 262144, 1}, 1e-2, CaseUse::bench);  // heads
  for (const DType w : kWeights) {
    if (640 % info(w).block_elements == 0) cases.product(false, w, {640, 2048, 1}, 1e-2, CaseUse::bench);
    cases.product(false, w, {2560, 10240, 512}, 1e-2, CaseUse::bench);
    cases.product(true, w, {2560, 10240, 512}, 1e-2, CaseUse::bench);
  }
  for (const DType w : {F32, F16, Q8_0, Q4_K}) cases.product(false, w, {4096, 4096, 4096}, 1e-2, CaseUse::bench);
  return std::move(cases.all);
}

std::vector<OpRefusal> matmul_refusals() {
  const auto x = [](Graph& g, std::uint64_t k) { return g.input("x", {F32, {2, k}}); };
  const auto w = [](Graph& g, TensorDesc desc) { return g.input("w", desc); };
  return {
      {"matmul", "rows of another length", [=](Graph& g) { (void)matmul(x(g, 8), w(g, {F32, {4, 9}})); },
       "matmul: x is F32 [2, 8], expected F32 [..., 9]"},
      {"matmul", "a weight of three dimensions", [=](Graph& g) { (void)matmul(x(g, 8), w(g, {F32, {2, 4, 8}})); },
       "matmul: w is F32 [2, 4, 8], expected two dimensions"},
      {"matmul", "a weight of ids", [=](Graph& g) { (void)matmul(x(g, 8), w(g, {U32, {4, 8}})); },
       "matmul: w is U32 [4, 8], expected F32, F16, BF16, Q8_0"},
      {"matmul", "an x of halves", [=](Graph& g) { (void)matmul(w(g, {F16, {2, 8}}), w(g, {F32, {4, 8}})); },
       "matmul: x is F16 [2, 8], expected F32"},
      {"matmul", "rows that are no whole blocks", [=](Graph& g) { (void)matmul(x(g, 128), w(g, {Q4_K, {4, 128}})); },
       "matmul: w is Q4_K [4, 128], expected rows of a multiple of 256 elements"},
      {"matmul", "a tile outside the matrix",
       [=](Graph& g) { (void)matmul(x(g, 8), w(g, {F32, {4, 8}}), {.row0 = 2, .row1 = 5}); },
       "matmul: rows 2 to 5 do not lie in w, which is F32 [4, 8]"},
      {"matmul", "something of another shape to add",
       [=](Graph& g) { (void)matmul(x(g, 8), w(g, {F32, {4, 8}}), {.plus = x(g, 5)}); },
       "matmul: plus is F32 [2, 5], expected F32 [2, 4]"},
      {"matmul_transposed", "a dy of another width",
       [=](Graph& g) { (void)matmul_transposed(x(g, 8), w(g, {F32, {4, 8}})); },
       "matmul_transposed: x is F32 [2, 8], expected F32 [..., 4]"},
      {"matmul_transposed", "a tile that ends before it begins",
       [=](Graph& g) { (void)matmul_transposed(x(g, 8), w(g, {F32, {4, 8}}), {.row0 = 3, .row1 = 2}); },
       "matmul_transposed: rows 3 to 2 do not lie in w"},
      {"outer_sum", "another number of rows", [=](Graph& g) { (void)outer_sum(x(g, 8), w(g, {F32, {3, 8}})); },
       "outer_sum: b is F32 [3, 8], expected F32 with 2 rows"},
  };
}

}  // namespace rullama
